"""How a site looks: its layout, its wording, its language and its colours, all drawn by a seed."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

LANGUAGES = ("en", "de", "es", "fr", "it", "nl", "pt", "sv")
WORDS: dict[str, dict[str, tuple[str, ...]]] = {
    "save": {
        "en": ("Save", "Submit", "OK", "Confirm", "Done"),
        "de": ("Speichern",),
        "es": ("Guardar",),
        "fr": ("Enregistrer",),
        "it": ("Salva",),
        "nl": ("Opslaan",),
        "pt": ("Salvar",),
        "sv": ("Spara",),
    },
    "find": {
        "en": ("Search", "Find", "Go", "Show"),
        "de": ("Suchen",),
        "es": ("Buscar",),
        "fr": ("Rechercher",),
        "it": ("Cerca",),
        "nl": ("Zoeken",),
        "pt": ("Pesquisar",),
        "sv": ("Sök",),
    },
    "create": {
        "en": ("New {}", "Add {}", "Create {}", "Make {}"),
        "de": ("Neu: {}",),
        "es": ("Nuevo: {}",),
        "fr": ("Nouveau : {}",),
        "it": ("Nuovo: {}",),
        "nl": ("Nieuw: {}",),
        "pt": ("Novo: {}",),
        "sv": ("Ny: {}",),
    },
    "update": {
        "en": ("Edit {}", "Change {}", "Update {}", "Modify {}"),
        "de": ("Bearbeiten: {}",),
        "es": ("Editar: {}",),
        "fr": ("Modifier : {}",),
        "it": ("Modifica: {}",),
        "nl": ("Bewerken: {}",),
        "pt": ("Editar: {}",),
        "sv": ("Redigera: {}",),
    },
    "delete": {
        "en": ("Delete {}", "Remove {}", "Discard {}", "Erase {}"),
        "de": ("Löschen: {}",),
        "es": ("Eliminar: {}",),
        "fr": ("Supprimer : {}",),
        "it": ("Elimina: {}",),
        "nl": ("Verwijderen: {}",),
        "pt": ("Excluir: {}",),
        "sv": ("Ta bort: {}",),
    },
    "list": {
        "en": ("All {}", "{}", "List of {}", "Browse {}"),
        "de": ("Alle: {}",),
        "es": ("Todo: {}",),
        "fr": ("Tout : {}",),
        "it": ("Tutto: {}",),
        "nl": ("Alle: {}",),
        "pt": ("Tudo: {}",),
        "sv": ("Alla: {}",),
    },
    "search": {
        "en": ("Search {}", "Find {}", "Look up {}"),
        "de": ("Suchen: {}",),
        "es": ("Buscar: {}",),
        "fr": ("Rechercher : {}",),
        "it": ("Cerca: {}",),
        "nl": ("Zoeken: {}",),
        "pt": ("Pesquisar: {}",),
        "sv": ("Sök: {}",),
    },
    "next": {
        "en": ("Next", "Next page", "Older", "More"),
        "de": ("Weiter",),
        "es": ("Siguiente",),
        "fr": ("Suivant",),
        "it": ("Avanti",),
        "nl": ("Volgende",),
        "pt": ("Próxima",),
        "sv": ("Nästa",),
    },
    "previous": {
        "en": ("Previous", "Previous page", "Newer", "Back"),
        "de": ("Zurück",),
        "es": ("Anterior",),
        "fr": ("Précédent",),
        "it": ("Indietro",),
        "nl": ("Vorige",),
        "pt": ("Anterior",),
        "sv": ("Föregående",),
    },
    "home": {
        "en": ("Home", "Start", "Overview", "Main page"),
        "de": ("Startseite",),
        "es": ("Inicio",),
        "fr": ("Accueil",),
        "it": ("Inizio",),
        "nl": ("Begin",),
        "pt": ("Início",),
        "sv": ("Start",),
    },
    "done": {
        "en": ("Done.", "Saved.", "Your changes are saved.", "OK, done."),
        "de": ("Gespeichert.",),
        "es": ("Guardado.",),
        "fr": ("Enregistré.",),
        "it": ("Salvato.",),
        "nl": ("Opgeslagen.",),
        "pt": ("Salvo.",),
        "sv": ("Sparat.",),
    },
    "nothing": {
        "en": ("Nothing found.", "No results.", "There is nothing here."),
        "de": ("Nichts gefunden.",),
        "es": ("No hay nada.",),
        "fr": ("Rien trouvé.",),
        "it": ("Nessun risultato.",),
        "nl": ("Niets gevonden.",),
        "pt": ("Nada encontrado.",),
        "sv": ("Inget hittades.",),
    },
    "yes": {
        "en": ("yes",),
        "de": ("ja",),
        "es": ("sí",),
        "fr": ("oui",),
        "it": ("sì",),
        "nl": ("ja",),
        "pt": ("sim",),
        "sv": ("ja",),
    },
    "no": {
        "en": ("no",),
        "de": ("nein",),
        "es": ("no",),
        "fr": ("non",),
        "it": ("no",),
        "nl": ("nee",),
        "pt": ("não",),
        "sv": ("nej",),
    },
    "any": {
        "en": ("any",),
        "de": ("alle",),
        "es": ("todos",),
        "fr": ("tous",),
        "it": ("tutti",),
        "nl": ("alle",),
        "pt": ("todos",),
        "sv": ("alla",),
    },
}
"""What a site's own words are, by language; one of several is drawn."""

PALETTES = (
    ("#1a4f8b", "#ffffff", "#1b1b1b"),
    ("#7a1f3d", "#fffaf5", "#2a1a1a"),
    ("#22653a", "#f7faf7", "#16241a"),
    ("#4b3b8f", "#faf9ff", "#1d1a2e"),
    ("#333333", "#f2f2f2", "#111111"),
    ("#8a5a00", "#fffdf6", "#2b2213"),
    ("#7fb4ff", "#14181f", "#e8ecf2"),
    ("#0b6b6b", "#f3fbfb", "#122424"),
)
"""Colours: of links and buttons, of the ground, of the text."""

FONTS = ("sans-serif", "serif", "monospace")


@dataclass(frozen=True, slots=True)
class Look:
    """The look of one site."""

    language: str
    navigation: Literal["top", "side"]
    rows: Literal["table", "cards"]
    buttons: Literal["above", "below"]  # where the links to actions stand
    palette: tuple[str, str, str]
    font: str
    size: int  # of the text, in pixels
    words: dict[str, str]

    @classmethod
    def drawn(cls, rng: random.Random, languages: Sequence[str] = ("en",)) -> Look:
        """Draw a look.

        Args:
            rng: what is drawn depends on nothing else.
            languages: of which one is taken; see `LANGUAGES`.
        """
        language = rng.choice(languages)
        return cls(
            language=language,
            navigation=rng.choice(("top", "side")),
            rows=rng.choice(("table", "cards")),
            buttons=rng.choice(("above", "below")),
            palette=rng.choice(PALETTES),
            font=rng.choice(FONTS),
            size=rng.choice((14, 15, 16, 18)),
            words={key: rng.choice(of[language]) for key, of in WORDS.items()},
        )
