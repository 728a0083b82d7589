"""All checks of this machine and environment, joined into one answer."""

from __future__ import annotations

from collections.abc import Iterator

from ftforensics.causes.driver_fit import driver_fit
from ftforensics.host.host import Host
from ftforensics.model.basics import Gap
from ftforensics.model.crash import Driver
from ftforensics.model.preflight import Check, Preflight, Subject
from ftforensics.model.software import Software
from ftforensics.parsers.gpu_variables import visible_devices
from ftforensics.preflight import advice, capture
from ftforensics.preflight.data import data_checks, writable_checks
from ftforensics.preflight.distributed import distributed_checks
from ftforensics.preflight.driver import driver_checks
from ftforensics.preflight.gpus import gpu_text, with_visible
from ftforensics.preflight.libraries import library_checks
from ftforensics.preflight.machine import machine_checks
from ftforensics.preflight.options import Options
from ftforensics.preflight.seen import Seen, look


def run_checks(host: Host, options: Options) -> Preflight:
    """Looks, and judges. Under a second where nothing hangs; what hangs has deadlines of a few seconds each."""
    return judged(look(host, options), options)


def judged(seen: Seen, options: Options) -> Preflight:
    checks = list(_checks(seen, options))
    driver = seen.driver if isinstance(seen.driver, Driver) else None
    gaps = [seen.driver] if isinstance(seen.driver, Gap) else []
    gaps += [*seen.software.gaps, *seen.would.gaps, *seen.machine.gaps, *capture.gaps(seen.witnesses)]
    return answer(checks, seen.software, driver, options, gaps)


def answer(
    checks: list[Check], software: Software | None, driver: Driver | None, options: Options, gaps: list[Gap]
) -> Preflight:
    used = with_visible(driver, visible_devices(options.variable("CUDA_VISIBLE_DEVICES"))) if driver else None
    chosen = advice.torch_advice(software, used) if used else []
    return Preflight(
        checks=checks,
        advice=chosen,
        gaps=list(dict.fromkeys(gaps)),
        subject=_subject(software, used),
        causes=advice.suspects(checks),
        remedies=advice.fixes(checks, chosen),
    )


def _checks(seen: Seen, options: Options) -> Iterator[Check]:
    driver = seen.driver if isinstance(seen.driver, Driver) else None
    chosen = visible_devices(options.variable("CUDA_VISIBLE_DEVICES"))
    yield from driver_checks(seen.software, seen.driver, seen.would.libraries, devices=seen.devices, chosen=chosen)
    yield from library_checks(seen.software, seen.would, driver, machine=seen.software.machine, hashed=options.verify)
    yield from machine_checks(seen.machine, [*seen.writes, *([seen.recording.folder] if seen.recording.folder else [])])
    yield from data_checks(seen.data)
    yield from writable_checks(seen.writes)
    yield from capture.capture_checks(seen.recording, seen.machine, seen.witnesses)
    if options.distributed:
        yield from distributed_checks(
            options,
            seen.software,
            driver,
            network=seen.network,
            met=seen.met,
            devices=seen.devices,
            start_method=seen.start_method,
        )


def _subject(software: Software | None, driver: Driver | None) -> Subject:
    torch = software.torch if software else None
    fit = driver_fit(software, driver)
    return Subject(
        torch=torch.version if torch else None,
        cuda=torch.cuda if torch else None,
        driver=driver.module_version if driver else None,
        level=fit.level,
        gpus=[gpu_text(gpu) for gpu in driver.gpus] if driver else [],
        python=software.python if software else None,
        prefix=software.prefix if software else None,
    )
