"""What mail can do: send, reply, forward."""

from __future__ import annotations

from palaestra.environments.families.apps.compiler.api import ApiError, Caller
from palaestra.environments.families.apps.compiler.verbs import verb
from palaestra.environments.families.apps.state import Row

MESSAGE = "mail.message"


def _deliver(
    call: Caller, recipient: str, subject: str, body: str, answered: Row | None = None
) -> Row:
    """Put a message into the recipient's inbox and the caller's sent mail; return the latter.

    The copy of each answers their own copy of the message that is answered.
    """
    people = call.state.find("supervisor.person", email=recipient)
    if not people:
        raise ApiError(404, f"There is no mailbox '{recipient}'.")
    if len(subject) > 120 or len(body) > 10_000:
        raise ApiError(422, "A subject has at most 120 characters, and a body 10000.")
    row: Row = {
        "sender": call.email(),
        "recipient": recipient,
        "subject": subject,
        "body": body,
        "sent": call.now,
    }
    theirs, mine = None, None
    if answered:
        mine = answered["id"]
        same = {key: answered[key] for key in ("sender", "recipient", "subject", "body", "sent")}
        found = call.state.find(MESSAGE, owner=people[0]["id"], **same)
        theirs = found[0]["id"] if found else None  # None: the sender has deleted it
    inbox = {"owner": people[0]["id"], "folder": "inbox", "read": False, "answers": theirs}
    call.state.insert(MESSAGE, row | inbox)
    sent = {"owner": call.person, "folder": "sent", "read": True, "answers": mine}
    id = call.state.insert(MESSAGE, row | sent)
    return {"message_id": id, "sent_to": recipient}


@verb
def send_message(call: Caller, recipient: str, subject: str, body: str) -> Row:
    """Send a message.

    Args:
        recipient: an email address

    Returns:
        message_id: integer
        sent_to: string

    Raises:
        404: nobody has that address
    """
    return _deliver(call, recipient, subject, body)


@verb
def reply_message(call: Caller, message_id: int, body: str) -> Row:
    """Reply to the sender of a message.

    Returns:
        message_id: integer
        sent_to: string

    Raises:
        404: you have no such message
    """
    message = call.own(MESSAGE, message_id)
    subject = f"Re: {message['subject'].removeprefix('Re: ')}"[:120]
    return _deliver(call, message["sender"], subject, body, message)


@verb
def forward_message(call: Caller, message_id: int, recipient: str) -> Row:
    """Forward a message to somebody else.

    Returns:
        message_id: integer
        sent_to: string

    Raises:
        404: you have no such message, or nobody has that address
    """
    message = call.own(MESSAGE, message_id)
    subject = f"Fwd: {message['subject'].removeprefix('Fwd: ')}"[:120]
    return _deliver(call, recipient, subject, message["body"])


VERBS = (send_message, reply_message, forward_message)
