"""Rooms in which people have been chatting."""

from __future__ import annotations

from palaestra.environments.families.apps.histories.scene import Scene
from palaestra.environments.families.apps.names import ACTIVITIES
from palaestra.environments.families.apps.people import Person
from palaestra.environments.families.apps.state import Row

CHAT = (
    "Good morning!", "Who is there this evening?", "I am a little late.", "That was a nice day.",
    "Thanks for your help.", "Did anybody see my umbrella?", "Yes, of course.", "I do not know.",
    "Let us talk about it tomorrow.", "See you later.", "It rains here.", "What do you think?",
    "I agree.", "Sorry, I missed that.", "Congratulations!", "Can somebody bring some bread?",
)  # fmt: skip
SIGNS = ("thumbs up", "heart", "laugh", "question")
LINES = 12  # of a room
THINGS = 2  # of a room, about which somebody told two facts


def chat(scene: Scene) -> None:
    """Write rooms for family, colleagues and friends, with small talk and some facts."""
    for person in scene.active:
        titles = scene.rng.sample(ACTIVITIES["friend"], 2)
        friends = scene.known(person, "friend")
        rooms = [
            (f"Family {person.surname}", scene.known(person, "family")),
            (f"Team {person.employer}", scene.known(person, "colleague")),
            *((title, scene.rng.sample(friends, min(len(friends), 3))) for title in titles),
        ]
        for name, others in rooms:
            if others:
                _room(scene, name, [person, *others])


def _room(scene: Scene, name: str, people: list[Person]) -> None:
    """Write a room that one of the people opened."""
    rng, state = scene.rng, scene.state
    row: Row
    host = rng.choice(people)
    if state.find("chat.room", owner=host.id, name=name):
        return  # a person of the same family or team was there before
    room = state.insert("chat.room", {"owner": host.id, "name": name, "topic": ""})
    for person in people:
        if person is not host:
            row = {"owner": host.id, "room_id": room, "email": person.email}
            state.insert("chat.member", row)
    texts = [*rng.sample(CHAT, LINES - 2 * THINGS), *scene.facts(scene.things(THINGS))]
    rng.shuffle(texts)
    for text, sent in zip(texts, scene.past(len(texts), 14), strict=True):
        sender = rng.choice(people)
        row = {"owner": sender.id, "room_id": room, "sender": sender.email}
        message = state.insert("chat.message", row | {"text": text, "sent": sent})
        if rng.random() < 0.2:
            fan = rng.choice(people)
            row = {"owner": fan.id, "message_id": message, "sender": fan.email}
            state.insert("chat.reaction", row | {"sign": rng.choice(SIGNS)})
