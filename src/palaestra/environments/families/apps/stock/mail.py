"""What mail can do: send, reply, forward."""

from __future__ import annotations

from palaestra.environments.families.apps.compiler.api import ApiError, Caller
from palaestra.environments.families.apps.compiler.verbs import verb
from palaestra.environments.families.apps.state import Row

MESSAGE = "mail.message"


def _deliver(
    call: Caller, recipient: str, subject: str, body: str, answers: int | None = None
) -> Row:
    """Put a message into the recipient's inbox and the caller's sent mail; return the latter."""
    people = call.state.find("supervisor.person", email=recipient)
    if not people:
        raise ApiError(404, f"There is no mailbox '{recipient}'.")
    if len(subject) > 120 or len(body) > 10_000:
        raise ApiError(422, "A subject has at most 120 characters, and a body 10000.")
    row: Row = {"sender": call.email(), "recipient": recipient, "subject": subject, "body": body}
    row |= {"sent": call.now, "answers": answers}
    inbox = {"owner": people[0]["id"], "folder": "inbox", "read": False}
    call.state.insert(MESSAGE, row | inbox)
    id = call.state.insert(MESSAGE, row | {"owner": call.person, "folder": "sent", "read": True})
    return {"message_id": id, "sent_to": recipient}


@verb
def send_message(call: Caller, recipient: str, subject: str, body: str) -> Row:
    """Send a message.

    Args:
        recipient: an email address
    """
    return _deliver(call, recipient, subject, body)


@verb
def reply_message(call: Caller, message_id: int, body: str) -> Row:
    """Reply to the sender of a message."""
    message = call.own(MESSAGE, message_id)
    subject = f"Re: {message['subject'].removeprefix('Re: ')}"[:120]
    return _deliver(call, message["sender"], subject, body, message_id)


@verb
def forward_message(call: Caller, message_id: int, recipient: str) -> Row:
    """Forward a message to somebody else."""
    message = call.own(MESSAGE, message_id)
    subject = f"Fwd: {message['subject'].removeprefix('Fwd: ')}"[:120]
    return _deliver(call, recipient, subject, message["body"])


VERBS = (send_message, reply_message, forward_message)
