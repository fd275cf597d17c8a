"""Turns of WebLINX's demonstrations: the next action from the recorded history, judged offline."""
