"""Python problems: what a function has to do, a solution, and calls that test it.

The first `SHOWN` calls are those that tests of a team are about; the others stay hidden. The
solutions are pure functions of built-in types, without imports, so that mutations of them are
wrong and run.
"""

from __future__ import annotations

from dataclasses import dataclass
from textwrap import dedent

SHOWN = 4  # calls in a problem's own tests


@dataclass(frozen=True, slots=True)
class Problem:
    """One function to be written."""

    name: str  # of the function
    text: str
    solution: str
    calls: tuple[str, ...]


def _problem(text: str, solution: str, *arguments: str) -> Problem:
    source = dedent(solution).strip()
    name = source.partition("(")[0].removeprefix("def ")
    return Problem(name, text, source, tuple(f"{name}({given})" for given in arguments))


PROBLEMS = (
    _problem(
        "Return the run-length encoding of a text, such as 'a3b1' for 'aaab'.",
        """
        def encode(text):
            found, count = "", 0
            for at, letter in enumerate(text):
                count += 1
                if at + 1 == len(text) or text[at + 1] != letter:
                    found += letter + str(count)
                    count = 0
            return found
        """,
        "'aaab'", "'abc'", "'zzzzyy'", "'aabbaa'", "''", "'q'", "'  x'", "'aab' * 3",
    ),
    _problem(
        "Merge intervals [start, end] of whole numbers that share a number or are neighbours, "
        "such as [1, 2] and [3, 4]; return them sorted.",
        """
        def merge(intervals):
            found = []
            for start, end in sorted(intervals):
                if found and start <= found[-1][1] + 1:
                    found[-1] = [found[-1][0], max(found[-1][1], end)]
                else:
                    found.append([start, end])
            return found
        """,
        "[[1, 3], [4, 6]]", "[[5, 6], [1, 3]]", "[[1, 9], [2, 3]]", "[[0, 2], [1, 4], [6, 7]]",
        "[]", "[[4, 4], [4, 5]]", "[[1, 2], [2, 3], [3, 4]]", "[[7, 8], [0, 9]]",
    ),
    _problem(
        "Return how many days a month has, with leap years of the Gregorian calendar.",
        """
        def days(year, month):
            if month == 2:
                leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
                return 29 if leap else 28
            return 30 if month in (4, 6, 9, 11) else 31
        """,
        "2024, 2", "1900, 2", "2023, 2", "2023, 4", "2000, 2", "2023, 12", "1996, 2", "2100, 2",
        "2023, 9", "2023, 11", "2022, 6", "2022, 1",
    ),
    _problem(
        "Shift the letters a to z of a text by k places around the alphabet; keep all else.",
        """
        def shift(text, k):
            found = ""
            for letter in text:
                if "a" <= letter <= "z":
                    found += chr((ord(letter) - 97 + k) % 26 + 97)
                else:
                    found += letter
            return found
        """,
        "'abc', 3", "'xyz', 2", "'a-z!', 1", "'hello', 13", "'', 5", "'zebra', -1", "'ab', 26",
        "'Q r', 4",
    ),
    _problem(
        "Return the length of the longest strictly increasing run of neighbours in a list.",
        """
        def longest_run(numbers):
            best, run = 0, 0
            for at, number in enumerate(numbers):
                if at > 0 and number > numbers[at - 1]:
                    run += 1
                else:
                    run = 1
                best = max(best, run)
            return best
        """,
        "[1, 2, 3, 1]", "[5, 4, 4, 6]", "[2, 2, 2]", "[1, 3, 2, 4, 6]", "[]", "[9]",
        "[3, 2, 1]", "[1, 2, 0, 1, 2, 3]",
    ),
    _problem(
        "Return whether the brackets ()[]{} of a text are closed in the right order.",
        """
        def balanced(text):
            pairs, open_ones = {")": "(", "]": "[", "}": "{"}, []
            for sign in text:
                if sign in pairs.values():
                    open_ones.append(sign)
                elif sign in pairs:
                    if not open_ones or open_ones.pop() != pairs[sign]:
                        return False
            return len(open_ones) == 0
        """,
        "'(a[b])'", "'(]'", "'(('", "'a+b'", "''", "')('", "'{[()]}()'", "'[(])'",
    ),
    _problem(
        "Return the digits of a whole number from 0 in a base from 2 to 16, in small letters.",
        """
        def in_base(number, base):
            digit = "0123456789abcdef"[number % base]
            if number < base:
                return digit
            return in_base(number // base, base) + digit
        """,
        "10, 2", "255, 16", "7, 8", "0, 2", "1, 3", "100, 7", "4095, 16", "81, 9",
    ),
    _problem(
        "Return the k-th smallest of the different numbers in a list, from 1; None if too few.",
        """
        def smallest(numbers, k):
            different = sorted(set(numbers))
            if k < 1 or k > len(different):
                return None
            return different[k - 1]
        """,
        "[3, 1, 2], 2", "[1, 1, 1], 2", "[5, 4], 2", "[4, 2, 2, 9], 1", "[], 1", "[7], 0",
        "[7], 1", "[6, 5, 4, 3], 3",
    ),
    _problem(
        "Return the score of a bowling game without bonus for strikes: a list of throws, in which "
        "two throws that add up to 10 (a spare) count the next throw once more.",
        """
        def bowling(throws):
            total = 0
            for at in range(0, len(throws), 2):
                pair = sum(throws[at : at + 2])
                total += pair
                if pair == 10 and at + 2 < len(throws):
                    total += throws[at + 2]
            return total
        """,
        "[1, 2, 3, 4]", "[5, 5, 3, 0]", "[9, 1]", "[0, 0, 4, 6, 2, 2]", "[]", "[3]",
        "[5, 5, 5, 5, 1]", "[10, 0, 7, 1]",
    ),
    _problem(
        "Return the positions, from 0, at which a word begins in a text; they may overlap.",
        """
        def positions(text, word):
            found = []
            for at in range(len(text) - len(word) + 1):
                if text[at : at + len(word)] == word:
                    found.append(at)
            return found
        """,
        "'banana', 'an'", "'aaa', 'aa'", "'abc', 'x'", "'cab', 'b'", "'', 'a'", "'a', 'ab'",
        "'xx', 'x'", "'mississippi', 'issi'",
    ),
    _problem(
        "Return the change for a price, in coins of 50, 20, 10, 5, 2 and 1, the largest first.",
        """
        def change(amount):
            found = []
            for coin in (50, 20, 10, 5, 2, 1):
                while amount >= coin:
                    found.append(coin)
                    amount -= coin
            return found
        """,
        "88", "1", "50", "99", "0", "3", "40", "125",
    ),
    _problem(
        "Return a text wrapped into lines of at most the width, broken between words only.",
        """
        def wrap(text, width):
            lines, line = [], ""
            for word in text.split():
                if line and len(line) + 1 + len(word) > width:
                    lines.append(line)
                    line = word
                else:
                    line = line + " " + word if line else word
            return lines + [line] if line else lines
        """,
        "'a bb ccc', 4", "'one two', 7", "'one two', 6", "'x', 1", "'', 3", "'aa bb cc dd', 5",
        "'long-word b', 4", "'a b c', 3",
    ),
)  # fmt: skip
