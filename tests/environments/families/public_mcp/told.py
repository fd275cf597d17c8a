"""Checks of what an agent says at the end."""

import re


def debt(task, calls, words):
    return re.findall(r"\d+", words) == ["12"]


def town(task, calls, words):
    return "Ulm" in words and "Bern" not in words


def costs(task, calls, words):
    return re.findall(r"\d+", words) == ["17"]
