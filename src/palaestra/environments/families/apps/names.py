"""Lists of words from which worlds are drawn: names of people, companies, streets and things."""

from __future__ import annotations

FIRST_NAMES = tuple(
    """
    Aaron Abigail Adam Agnes Alan Alice Alma Amelia Amir Andrea Anna Anton Arthur Astrid Aurora
    Beatrice Benjamin Bianca Boris Bruno Camille Carl Carmen Cecilia Charles Chloe Clara Conrad
    Dalia Daniel David Diana Dominic Dora Edgar Edith Elena Elias Ella Emil Emma Erik Esther Eva
    Fatima Felix Fiona Flora Frances Frida Gabriel George Gloria Grace Gustav Hanna Harold Hector
    Helen Henry Hugo Ida Ingrid Irene Iris Isaac Ivan Jacob James Jane Jasmin Joel Johanna Jonas
    Judith Julia Julian Karim Kate Kim Klara Lara Laura Leo Leonie Lina Linus Louis Lucia Lukas
    Magda Marco Maria Marta Martin Matilda Max Maya Mei Milan Miriam Mona Nadia Nathan Nelson Nina
    Noah Nora Olga Oliver Olivia Omar Oscar Otto Paul Paula Petra Philip Pia Quentin Rachel Ralph
    Rania Rebecca Ricardo Rosa Ruben Ruth Salma Samuel Sandra Sarah Sebastian Selma Silvia Simon
    Sofia Stella Susan Sven Tamara Tariq Teresa Theo Thomas Tobias Uma Ursula Valentin Vera Victor
    Viola Walter Wanda William Xenia Yara Yusuf Zoe
    """.split()
)

SURNAMES = tuple(
    """
    Abbott Adler Aldridge Almeida Andersen Archer Bailey Barnes Becker Bennett Berger Bishop
    Blackwood Brandt Brooks Burton Campbell Carver Castillo Chandra Clarke Coleman Cooper Costa
    Crawford Dalton Davies Delgado Dixon Dubois Eaton Ellis Engel Farrell Fischer Fletcher Forster
    Garcia Gardner Gibson Graham Greene Haddad Hansen Harper Hartmann Hayes Holloway Horvath
    Hughes Ibrahim Iverson Jansen Jennings Kaplan Keller Khalil Kovac Kramer Lambert Larsen Lehmann
    Lindgren Lopez Lorenz Marsh Mason Mendoza Meyer Mitchell Moreau Moretti Nakamura Navarro
    Newman Nielsen Novak Oakley Olsen Okafor Palmer Parker Patel Pereira Petrov Porter Quinn Ramos
    Reed Reyes Richter Rossi Rowe Sanders Santos Schneider Shah Sharpe Silva Sommer Stone Sullivan
    Tanaka Taylor Thornton Turner Vance Vargas Vogel Wagner Walsh Warren Weber Whitfield Winter
    Wolf Wright Yilmaz York Zeller Zimmer
    """.split()
)

ADJECTIVES = tuple(
    """
    amber ancient autumn bitter blue bold brass bright bronze calm clever copper coral crimson curly
    deep distant dusty early eastern fancy fine gentle golden grand green grey happy heavy hidden
    hollow icy ivory jolly keen late light lively lucky marble mellow misty modern narrow noble
    northern olive orange pale patient plain polished proud purple quick quiet rapid red round royal
    rustic sandy scarlet shady sharp silent silver simple smooth soft solid southern spare spring
    steady stone strong summer sunny sweet swift tall tidy tiny violet warm western white wide wild
    winter wooden yellow young
    """.split()
)

NOUNS = tuple(
    """
    anchor apple arrow badge barrel basket beacon bell bench bottle bridge brook brush bucket button
    cabin candle canvas castle cedar chair clock cloud compass cottage cradle crown cushion desk
    drum elm engine falcon feather fern field flute forest fountain garden gate glove hammer harbour
    hat hazel heron hill island jacket kettle key ladder lake lamp lantern leaf maple meadow mill
    mirror oak orchard otter paddle parcel path pebble pencil pepper piano pillow pine pocket pond
    quilt raven ribbon river road robin rope saddle sail shelf ship sparrow spoon star stool table
    teapot thimble thistle tower trail tulip umbrella valley violin wagon willow window yard
    """.split()
)

STREETS = (
    *(f"{noun.title()} Street" for noun in NOUNS[::3]),
    *(f"{noun.title()} Lane" for noun in NOUNS[1::3]),
)
TOWNS = ("Ashford", "Brookfield", "Eastbury", "Fairhaven", "Kingsmead", "Norwell", "Westport")

PLACES = {
    "family": (
        "at home",
        "the old library",
        "the town museum",
        "the city park",
        "Garden Restaurant",
    ),
    "friend": (
        "Cafe Linden",
        "the city park",
        "Riverside Cinema",
        "the sports hall",
        "the harbour",
    ),
    "colleague": ("the office", "meeting room 2", "meeting room 5", "the canteen", "Corner Bistro"),
    "other": ("the market square", "the railway station", "the old mill", "the town hall"),
    "": ("the shopping arcade", "the town centre", "12 Station Road", "40 Church Lane"),
}
"""Where people meet, by relation; under the empty one where they go alone."""

ACTIVITIES = {
    "family": (
        "Family dinner", "Birthday lunch", "Visit to the zoo", "Day at the lake", "Board games",
        "Gardening", "Museum visit", "Sunday brunch",
    ),
    "friend": (
        "Film evening", "Tennis", "Picnic", "Concert", "Hiking tour", "Coffee", "Quiz night",
        "Swimming", "Dinner",
    ),
    "colleague": (
        "Project review", "Budget meeting", "Planning session", "Interview", "Team lunch",
        "Training", "Customer call", "Status meeting",
    ),
    "other": ("Consultation", "Flat viewing", "Guitar lesson", "Repair visit", "Handover of keys"),
    "": (
        "Dentist", "Haircut", "Gym", "Doctor", "Car inspection", "Language course", "Yoga",
        "Grocery shopping",
    ),
}  # fmt: skip
"""What people do together, by relation; under the empty one what they do alone."""

NOTES = {
    "family": ("birthday present", "groceries", "electricity bill", "holiday flat", "bicycle"),
    "friend": ("dinner", "cinema tickets", "concert tickets", "train tickets", "shared taxi"),
    "colleague": ("team lunch", "farewell present", "coffee fund", "conference ticket", "taxi"),
    "other": ("guitar lesson", "repair", "rent", "cleaning", "deposit"),
}
"""What people pay each other for, by relation."""

TOPICS = {
    "family": (
        ("The {thing}", "I found the {thing} in the attic. Do you want it?", "Yes, please."),
        ("Weekend", "Are you at home at the weekend? I would bring the {thing}.", "Yes, come by."),
        ("Photos", "I sorted our photos. The one with the {thing} is my favourite.", "Mine, too."),
        ("Recipe", "The soup needs more salt. The pot is near the {thing}.", "Noted."),
    ),
    "friend": (
        ("A book", "You must read 'The {Thing}'. I liked it a lot.", "Thanks, I will look for it."),
        ("Holidays", "We rented a house beside the {thing}. It was quiet.", "That sounds lovely."),
        ("Moving", "Could you lend me your {thing} when I move?", "Of course, just take it."),
        ("Lost", "Did I leave my {thing} at your place?", "I have not seen it, sorry."),
    ),
    "colleague": (
        ("Report '{Thing}'", "The report '{Thing}' is ready. Please read it.", "I will."),
        ("Project {Thing}", "Project {Thing} starts next week.", "Good, I have time for it."),
        ("Order", "The {thing} for our office arrives on Friday.", "Thank you for ordering it."),
        ("Question", "Who is responsible for the file '{Thing}'?", "I think that I am."),
    ),
    "other": (
        ("Appointment", "I can look at the {thing} this week.", "Wednesday would be best."),
        ("Offer", "Are you still interested in the {thing}?", "Yes, what does it cost?"),
        ("Keys", "The keys are under the {thing}.", "I found them, thank you."),
    ),
}  # fmt: skip
"""What people write about, by relation: a subject, a message, and a reply."""
