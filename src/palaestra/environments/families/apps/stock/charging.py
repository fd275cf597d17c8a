"""What services share that take money by a card of the bank."""

from __future__ import annotations

from palaestra.environments.families.apps.compiler.api import ApiError, Caller
from palaestra.environments.families.apps.state import Row


def charge(call: Caller, card_id: int, amount: float) -> None:
    """Take money from the account of one of the caller's cards.

    Raises:
        ApiError: 404, the caller has no such card; 409, it is frozen, the amount is above its
            daily limit, or the account has less.
    """
    card = call.own("bank.card", card_id)
    account = call.state.get("bank.account", card["account_id"])
    assert account is not None  # an account with a card is never deleted
    if card["status"] != "active":
        raise ApiError(409, f"The card {card_id} is frozen.")
    if amount > card["daily_limit"]:
        raise ApiError(409, f"The card {card_id} allows {card['daily_limit']:g} at most.")
    if amount > account["balance"]:
        raise ApiError(409, f"The balance is {account['balance']:g}, less than {amount:g}.")
    _add(call, account, -amount)


def pay_back(call: Caller, card_id: int, amount: float) -> None:
    """Give money back to the account of a card, which may be frozen by now."""
    card = call.state.get("bank.card", card_id)
    account = call.state.get("bank.account", card["account_id"]) if card else None
    if account is None:
        raise ApiError(409, f"The card {card_id} is gone, so there is no account to pay to.")
    _add(call, account, amount)


def _add(call: Caller, account: Row, amount: float) -> None:
    balance = round(account["balance"] + amount, 2)
    call.state.update("bank.account", account["id"], {"balance": balance})
