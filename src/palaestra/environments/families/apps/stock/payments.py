"""What a wallet can do: pay people, ask them for money, and answer who asks."""

from __future__ import annotations

from palaestra.environments.families.apps.compiler.api import ApiError, Caller
from palaestra.environments.families.apps.compiler.verbs import verb
from palaestra.environments.families.apps.state import Row

WALLET, REQUEST = "payments.wallet", "payments.request"


def _person(call: Caller, email: str) -> int:
    """Return the id of somebody else."""
    found = call.state.find("supervisor.person", email=email)
    if not found or found[0]["id"] == call.person:
        raise ApiError(404, f"Nobody else has the address '{email}'.")
    return int(found[0]["id"])


def _check(amount: float, note: str) -> None:
    if amount <= 0 or round(amount, 2) != amount:
        raise ApiError(422, "An amount is above 0 and has at most two decimals.")
    if len(note) > 140:
        raise ApiError(422, "A note has at most 140 characters.")


def _transfer(call: Caller, payee: str, amount: float, note: str) -> int:
    """Move money from the caller's wallet to another one; return the transfer's id."""
    (source,) = call.state.find(WALLET, owner=call.person)
    (target,) = call.state.find(WALLET, owner=_person(call, payee))
    if source["balance"] < amount:
        raise ApiError(409, f"The balance is {source['balance']:g}, less than {amount:g}.")
    for row, change in ((source, -amount), (target, amount)):
        call.state.update(WALLET, row["id"], {"balance": round(row["balance"] + change, 2)})
    row = {"owner": call.person, "payer": call.email(), "payee": payee, "amount": float(amount)}
    return call.state.insert("payments.transfer", row | {"note": note, "paid": call.now})


def _ask(call: Caller, payer: str, amount: float, note: str) -> int:
    """Insert a request; return its id."""
    _person(call, payer)
    row = {"owner": call.person, "asker": call.email(), "payer": payer, "amount": float(amount)}
    return call.state.insert(REQUEST, row | {"note": note, "status": "open", "made": call.now})


def _open(call: Caller, request_id: int, side: str) -> Row:
    """Return an open request in which the caller is the `payer` or the `asker`."""
    request = call.read(REQUEST, request_id)
    if request[side] != call.email():
        raise ApiError(403, f"You are not the {side} of this request.")
    if request["status"] != "open":
        raise ApiError(409, f"This request is {request['status']}.")
    return request


@verb
def pay_person(call: Caller, payee: str, amount: float, note: str = "") -> Row:
    """Pay somebody from your wallet.

    Args:
        payee: an email address

    Returns:
        transfer_id: integer
        amount: number

    Raises:
        404: nobody else has that address
        409: the balance is too low
    """
    _check(amount, note)
    return {"transfer_id": _transfer(call, payee, amount, note), "amount": amount}


@verb
def request_money(call: Caller, payer: str, amount: float, note: str) -> Row:
    """Ask somebody for money.

    Args:
        payer: the email address of who should pay
        note: what it is for

    Returns:
        request_id: integer

    Raises:
        404: nobody else has that address
    """
    _check(amount, note)
    return {"request_id": _ask(call, payer, amount, note)}


@verb
def split_bill(call: Caller, payers: list[str], total: float, note: str) -> Row:
    """Ask several people for equal shares of a bill; you bear one share, and what is left over.

    Args:
        payers: the email addresses of the others
        note: what it was for

    Returns:
        share: number

    Raises:
        404: nobody else has one of the addresses
    """
    _check(total, note)
    if not payers or len(set(payers)) < len(payers):
        raise ApiError(422, "Name at least one person, and nobody twice.")
    share = int(round(total * 100) / (len(payers) + 1)) / 100
    _check(share, note)
    for payer in payers:
        _ask(call, payer, share, note)
    return {"share": share}


@verb
def settle_request(call: Caller, request_id: int) -> Row:
    """Pay what somebody asks of you.

    Returns:
        request_id: integer
        paid: number

    Raises:
        403: it is not asked of you
        404: there is no such request
        409: it is no longer open, or the balance is too low
    """
    request = _open(call, request_id, "payer")
    _transfer(call, request["asker"], request["amount"], request["note"])
    call.state.update(REQUEST, request_id, {"status": "paid"})
    return {"request_id": request_id, "paid": request["amount"]}


@verb
def decline_request(call: Caller, request_id: int) -> Row:
    """Refuse to pay what somebody asks of you.

    Returns:
        request_id: integer

    Raises:
        403: it is not asked of you
        404: there is no such request
        409: it is no longer open
    """
    _open(call, request_id, "payer")
    call.state.update(REQUEST, request_id, {"status": "declined"})
    return {"request_id": request_id}


@verb
def withdraw_request(call: Caller, request_id: int) -> Row:
    """No longer ask for money.

    Returns:
        request_id: integer

    Raises:
        403: you did not ask for it
        404: there is no such request
        409: it is no longer open
    """
    _open(call, request_id, "asker")
    call.state.update(REQUEST, request_id, {"status": "withdrawn"})
    return {"request_id": request_id}


VERBS = (
    pay_person,
    request_money,
    split_bill,
    settle_request,
    decline_request,
    withdraw_request,
)
