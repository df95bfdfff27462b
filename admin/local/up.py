"""Bring up the whole product on this machine, keep it running, and take it down again."""

import os
import secrets
import shlex
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

from admin.live_route import live_routes
from admin.local import demo, given, procfile, stores, welcome
from admin.local.console import Console
from admin.local.fleet import Fleet, describe_exit
from admin.local.place import SetupError, write_secret
from admin.local.ports import LOOPBACK, is_free, pick, reserve
from admin.local.tether import Tether
from admin.monitoring.sign_in.ways import ways_in
from shared.settings import Settings, SettingsError, load

RELEASE, WEB = "release", "web"
PREFERRED_PORT = 8000
#: s; on top of the drain: for the processes to notice and to exit
DRAIN_MARGIN_S = 5.0
#: s; the addresses are shown once the processes have nothing to say for this long, or after this long
QUIET_S, PATIENCE_FOR_QUIET_S = 0.7, 5.0


class Interrupts:
    """
    Counts the requests to stop: Ctrl-C, SIGTERM, a closed terminal.

    The first one also interrupts what is going on, until `only_count` is called: a set-up is cut short, a run drains.
    """

    def __init__(self) -> None:
        self.count = 0
        self._raises = True
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._note)

    def only_count(self) -> None:
        """From now on whoever works looks at `count`."""
        self._raises = False

    def _note(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        self.count += 1
        if self._raises:
            self._raises = False  # the clean-up must not be cut
            raise KeyboardInterrupt


class Local:
    """
    One local run of a checkout.

    Args:
        checkout: the folder with the Procfile; the processes' working directory.
        folder: where data, keys and passwords are kept.
        environment: that of this process; what is set in it goes before what would be chosen here.
    """

    def __init__(self, checkout: Path, *, folder: Path, environment: Mapping[str, str]) -> None:
        self._checkout, self._folder = checkout, folder
        self._given = given.without_own({name: value for name, value in environment.items() if value}, folder)
        self._console = Console(environment)
        self._interrupts = Interrupts()

    def up(self) -> int:
        """Run everything until asked to stop; the exit code is 0 then, 1 when it could not start."""
        return self._guarded(only_migrate=False)

    def migrate(self) -> int:
        """Run the Procfile's `release` alone, on the same stores."""
        return self._guarded(only_migrate=True)

    def _guarded(self, *, only_migrate: bool) -> int:
        tether = Tether()
        try:
            # Before anything is started, so that a fault shows at once; the addresses may not be known yet.
            self._settings({"DATABASE_URL": "postgresql://later", "REDIS_URL": "redis://later", **self._given})
            with (
                stores.locked(self._folder),
                stores.running(
                    self._folder, environment=self._given, tether=tether, console=self._console
                ) as running_stores,
            ):
                self._interrupts.only_count()
                self._run(running_stores, tether, only_migrate=only_migrate)
        except KeyboardInterrupt:
            self._console.step("stopped before it was up")
        except (SetupError, SettingsError) as fault:
            self._console.warn(str(fault))
            return 1
        finally:
            tether.close()
        return 0

    def _run(self, running_stores: stores.Stores, tether: Tether, *, only_migrate: bool) -> None:
        with self._web_port() as port:
            self._run_at(port, running_stores, tether, only_migrate=only_migrate)

    def _run_at(self, port: int, running_stores: stores.Stores, tether: Tether, *, only_migrate: bool) -> None:
        base = f"http://{LOOPBACK}:{port}"
        environment = self._environment(running_stores, port=port, base=base)
        settings = self._settings(environment)
        entries = {entry.name: entry for entry in procfile.read(self._checkout / "Procfile")}
        self._console.expect(list(entries))
        fleet = Fleet(
            folder=self._checkout,
            environment=environment,
            tether=tether,
            console=self._console,
            stop_requests=lambda: self._interrupts.count,
        )
        release = entries.pop(RELEASE, None)
        if release:
            self._console.step("bringing the database's schema up to date")
            code = fleet.run_once(release)
            if self._interrupts.count:
                return
            if code:
                raise SetupError(f"release failed ({describe_exit(code)}): nothing was started")
        if only_migrate:
            return
        key = demo.ensure_key(running_stores.database_url, self._folder / "demo-key")
        self._write_env_file(environment, base=base, key=key)
        self._console.step(f"starting {', '.join(entries)}")
        try:
            fleet.start(list(entries.values()))
            given_database = self._given.get("DATABASE_URL")
            run = welcome.Run(
                base=base,
                link=demo.sign_in_link(running_stores.database_url, base, environment["SECRET_KEY"])
                if ways_in(settings).links
                else "",
                key=key,
                folder=self._folder,
                routes=live_routes(settings),
                database=given.place_of(given_database) if given_database else "",
                commands=self._how_to_command(),
            )
            text = welcome.text(run)
            self._keep_running(fleet, running_stores, readiness=welcome.Readiness(base), text=text)
        finally:
            self._console.step("stopping: work in hand is finished or given back (Ctrl-C again to hurry)")
            fleet.drain(settings.queue_shutdown_drain_ms / 1000 + DRAIN_MARGIN_S)

    def _keep_running(
        self, fleet: Fleet, running_stores: stores.Stores, *, readiness: welcome.Readiness, text: str
    ) -> None:
        told, ready_at = False, 0.0
        while not self._interrupts.count:
            fleet.tick()
            self._keep_stores(running_stores)
            if told or readiness.answer is None:
                continue
            ready_at = ready_at or time.monotonic()
            # Below the lines of what still starts, where it can be seen.
            if fleet.quiet_for > QUIET_S or time.monotonic() - ready_at > PATIENCE_FOR_QUIET_S:
                told = True
                if readiness.answer:
                    self._console.warn(f"not ready yet: {readiness.answer}")
                self._console.block(text)

    def _keep_stores(self, running_stores: stores.Stores) -> None:
        for server in running_stores.embedded:
            if server.process and server.process.poll() is not None:
                name, url = type(server).__name__, server.url
                self._console.warn(f"the embedded {name} ended unexpectedly: starting it again")
                server.stop()
                if server.start() != url:
                    raise SetupError(f"the embedded {name} could not have its port again: start anew")

    @contextmanager
    def _web_port(self) -> Iterator[int]:
        """Give the web process's port, which no other run chooses meanwhile."""
        asked = self._given.get("UP_PORT") or self._given.get("PORT")
        if asked is not None and not (asked.isdecimal() and is_free(int(asked))):
            raise SetupError(f"port {asked} is not a number or is taken: set UP_PORT to another, or to nothing")
        port = int(asked) if asked else pick(PREFERRED_PORT)
        while (note := reserve(port)) is None:
            if asked:
                raise SetupError(f"port {asked} is another run's: set UP_PORT to another, or to nothing")
            port = pick()
        with note:
            yield port

    def _environment(self, running_stores: stores.Stores, *, port: int, base: str) -> dict[str, str]:
        """Give the processes' environment: what was given, else what suits a local run; Python's programs from here."""
        chosen = {
            "EMAIL_PROVIDER": "sandbox",
            "SMS_PROVIDER": "sandbox",
            "EMAIL_FROM": "Tidings <tidings@example.com>",
            "LOG_FORMAT": "text",
            "PUBLIC_URL": base,
            "SECRET_KEY": self._kept_secret("secret-key"),
            "WEB_BIND": LOOPBACK,
            "PYTHONUNBUFFERED": "1",
        }
        programs = str(Path(sys.executable).parent)
        return {
            **chosen,
            **self._given,
            "DATABASE_URL": running_stores.database_url,
            "REDIS_URL": running_stores.redis_url,
            "PORT": str(port),
            "PATH": os.pathsep.join([programs, self._given.get("PATH", os.defpath)]),
        }

    def _settings(self, environment: Mapping[str, str]) -> Settings:
        """Read what the processes will read, by the same rules."""
        names = {name: name.upper() for name in Settings.model_fields}
        return load(**{name: environment[key] for name, key in names.items() if environment.get(key)})

    def _kept_secret(self, name: str) -> str:
        path = self._folder / name
        if not path.exists():
            write_secret(path, secrets.token_hex(32))
        return path.read_text()

    def _how_to_command(self) -> str:
        tidings = Path(sys.executable).with_name("tidings")
        with suppress(ValueError):
            tidings = tidings.relative_to(self._checkout)
        if self._folder == self._checkout / ".local":  # the commands look there by themselves
            return f"{tidings} --help"
        return f"set -a; . {shlex.quote(str(self._folder / 'env'))}; set +a; {tidings} --help"

    def _write_env_file(self, environment: Mapping[str, str], *, base: str, key: str) -> None:
        """
        Keep what commands in another terminal need, for the present user's eyes only.

        That is every setting that was given: they name a provider's account as the processes do.
        """
        names = ["DATABASE_URL", "REDIS_URL", "SECRET_KEY", "EMAIL_PROVIDER", "SMS_PROVIDER", "EMAIL_FROM"]
        names += [name for field in Settings.model_fields if (name := field.upper()) in self._given]
        wanted = {name: environment[name] for name in names} | {"TIDINGS_URL": base, "TIDINGS_API_KEY": key}
        lines = [f"{name}={shlex.quote(value)}\n" for name, value in wanted.items()]
        write_secret(self._folder / "env", "".join(lines))
