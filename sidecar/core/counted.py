"""Numbers of things in words."""


def counted(number: int, what: str, *, thousands: bool = False) -> str:
    """`1 job`, `2000 jobs`; with `thousands` separated: `2,000 jobs`. `what` is one of them, with a regular plural."""
    return f"{number:{',' if thousands else ''}} {what}{'' if number == 1 else 's'}"
