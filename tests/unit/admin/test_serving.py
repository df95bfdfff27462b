from gunicorn.workers import gthread  # type: ignore[import-untyped]  # it has no types

from admin import serving


def test_what_is_shortened_in_gunicorn_is_still_there_and_longer() -> None:
    """An update that calls it otherwise would let each stop take two seconds more, and say nothing."""
    assert gthread.STOP_KEEPALIVE_LINGER > serving.LINGER_S
