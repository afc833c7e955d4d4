"""The pictures in docs/images, drawn anew: `python -m tests.screenshots.page docs/images`, likewise mail, slack and report; `dashboard`."""
