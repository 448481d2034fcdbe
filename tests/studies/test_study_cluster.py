"""A study on a Dask cluster over TCP: the same records as on this machine, and sentences where there is no cluster."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from arithmetic import Squares, study_of

from hetsched.errors import OptionError
from hetsched.studies.folder import Folder
from hetsched.studies.results import collect
from hetsched.studies.running import prepared, run

distributed = pytest.importorskip("distributed")


def test_workers_over_tcp_write_the_same_records(tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    squares, folder = Squares(tmp_path / "log"), Folder(tmp_path / "s")
    scenarios = prepared(study_of(12, 2), squares, tmp_path)
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, protocol="tcp", dashboard_address=None, silence_logs=50
    ) as cluster:
        assert cluster.scheduler_address.startswith("tcp://")
        ran = run(scenarios, squares, folder, cluster=cluster.scheduler_address)
        assert not ran.failures and ran.kept == 0
        assert [r.figures["square"] for r in collect(folder, scenarios)] == [k * k for k in range(12)] * 2
        again = run(scenarios, squares, folder, cluster=cluster.scheduler_address)
        assert again.kept == 24
    assert len(list((tmp_path / "log").glob("ended-*"))) == 24 and len(list((tmp_path / "log").glob("plan-*"))) == 2


def test_a_scheduler_without_workers_and_none_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hetsched.studies.cluster.CONNECT_S", 2)
    scenarios = prepared(study_of(2), Squares(), tmp_path)
    empty = distributed.LocalCluster(n_workers=0, protocol="tcp", dashboard_address=None, silence_logs=50)
    with empty as cluster, pytest.raises(OptionError, match="has no workers"):
        run(scenarios, Squares(), Folder(tmp_path / "s"), cluster=cluster.scheduler_address)
    with pytest.raises(OptionError, match="no Dask scheduler answers"):
        run(scenarios, Squares(), Folder(tmp_path / "s"), cluster="tcp://127.0.0.1:9")


def test_distributed_is_asked_for_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(OptionError, match=r"hetsched\[cluster\]"):
        run(prepared(study_of(2), Squares(), tmp_path), Squares(), Folder(tmp_path / "s"), cluster="tcp://127.0.0.1:9")
