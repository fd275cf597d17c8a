"""Decisions by votes: what counts as the same proposal."""

from palaestra.environments.teams.votes import agree, majority


def test_the_same_answer_in_other_words_is_one_vote() -> None:
    proposals = [
        "I think <answer>41</answer>, or rather <answer>41</answer>",
        "7 times 6 is 42.\n<answer>42</answer>",
        "6 + 36: <Answer> 42. </Answer>",
    ]
    assert majority(proposals) == proposals[1]
    assert agree(proposals[1:]) and not agree(proposals)
