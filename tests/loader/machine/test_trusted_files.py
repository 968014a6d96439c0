"""What is read back and trusted was written by this user or root, and nobody else."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from marks import needs_root

from loader.machine.trusted_files import (
    UntrustedError,
    check_code_folder,
    create_trusted,
    held_folder,
    make_private_folder,
    open_trusted,
)

STRANGER = 1000


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "kept"
    path.write_bytes(b"words")
    path.chmod(0o644)
    return path


def test_an_own_file_is_opened(file: Path) -> None:
    with open_trusted(file) as opened:
        assert opened.read() == b"words"


@pytest.mark.parametrize("mode", [0o666, 0o664, 0o646, 0o622, 0o4602])
def test_a_file_that_others_write_is_refused(file: Path, mode: int) -> None:
    file.chmod(mode)
    with pytest.raises(
        UntrustedError, match=rf"{file} is not trusted: others can write .*{mode:04o}.*`chmod go-w {file}`"
    ):
        open_trusted(file)


@needs_root
def test_another_users_file_is_refused(file: Path) -> None:
    os.chown(file, STRANGER, STRANGER)
    with pytest.raises(UntrustedError, match=rf"user {STRANGER} owns it; .*`chown 0 {file}`"):
        open_trusted(file)


@pytest.mark.parametrize("kind", ["a link", "a FIFO", "a folder", "nothing"])
def test_what_is_no_file_is_refused(file: Path, kind: str, tmp_path: Path) -> None:
    path = tmp_path / "other"
    make: dict[str, Callable[[], object]] = {
        "a link": lambda: path.symlink_to(file),
        "a FIFO": lambda: os.mkfifo(path),
        "a folder": path.mkdir,
        "nothing": lambda: None,
    }
    make[kind]()
    with pytest.raises(OSError, match="link" if kind == "a link" else "other"):
        open_trusted(path)


@pytest.mark.parametrize("umask", [0o000, 0o002, 0o077])
def test_what_is_made_is_trusted_by_any_umask(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        make_private_folder(tmp_path / "a" / "b")
        make_private_folder(tmp_path / "a" / "b")
        with create_trusted(tmp_path / "a" / "b" / "file") as file:
            file.write(b"own")
    finally:
        os.umask(before)
    assert [path.stat().st_mode & 0o777 for path in (tmp_path / "a", tmp_path / "a" / "b")] == [0o700, 0o700]
    check_code_folder(tmp_path / "a" / "b")
    with open_trusted(tmp_path / "a" / "b" / "file") as again:
        assert again.read() == b"own"


def test_a_private_folder_needs_a_free_name(file: Path) -> None:
    with pytest.raises(FileExistsError):
        make_private_folder(file)


def test_a_file_is_not_made_through_a_link(file: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(file)
    with pytest.raises(OSError, match="link"):
        create_trusted(tmp_path / "link")
    assert file.read_bytes() == b"words"


class TestFolderOfCode:
    @pytest.mark.parametrize(
        ("above", "own", "refused"),
        [
            (0o755, 0o700, False),
            (0o755, 0o755, False),
            (0o1777, 0o700, False),  # as /tmp is
            (0o755, 0o775, True),
            (0o755, 0o707, True),
            (0o755, 0o1777, True),  # anybody may put a file there
            (0o777, 0o700, True),  # anybody may put another folder in its place
            (0o775, 0o700, False),  # by the user's own group
        ],
    )
    def test_who_can_write_decides(self, tmp_path: Path, above: int, own: int, refused: bool) -> None:
        folder = tmp_path / "above" / "own"
        folder.mkdir(parents=True)
        folder.chmod(own)
        folder.parent.chmod(above)
        if refused:
            way_out = f"-R go-w {folder}`" if above == 0o755 else f"go-w {folder.parent}`"
            with pytest.raises(UntrustedError, match=rf"`chmod {way_out}$"):
                check_code_folder(folder)
        else:
            check_code_folder(folder)
            check_code_folder(folder / "missing" / "more")

    @needs_root
    def test_a_group_of_several_is_not_trusted(self, tmp_path: Path) -> None:
        os.chown(tmp_path, 0, STRANGER)
        tmp_path.chmod(0o770)
        with pytest.raises(UntrustedError, match=f"{tmp_path} is not trusted: others can write"):
            check_code_folder(tmp_path / "kernels")

    @needs_root
    @pytest.mark.parametrize("level", ["own", "above"])
    def test_another_users_folder_is_refused(self, tmp_path: Path, level: str) -> None:
        folder = tmp_path / "above" / "own"
        folder.mkdir(parents=True)
        os.chown(folder if level == "own" else folder.parent, STRANGER, STRANGER)
        with pytest.raises(UntrustedError, match=rf"{level} is not trusted: user {STRANGER} owns it"):
            check_code_folder(folder)

    def test_a_link_is_judged_by_its_goal(self, tmp_path: Path) -> None:
        goal = tmp_path / "goal"
        goal.mkdir()
        (tmp_path / "link").symlink_to(goal)
        check_code_folder(tmp_path / "link")
        goal.chmod(0o777)
        with pytest.raises(UntrustedError, match=f"{goal} is not trusted"):
            check_code_folder(tmp_path / "link")

    @needs_root
    def test_links_of_others_are_refused(self, tmp_path: Path) -> None:
        """Who made a link can let it point to another folder once that was looked at."""
        (tmp_path / "own").mkdir()
        link = tmp_path / "link"
        link.symlink_to(tmp_path / "own")
        check_code_folder(link / "missing")
        os.lchown(link, STRANGER, STRANGER)
        with pytest.raises(UntrustedError, match=f"{link} is not trusted: it is a link of user {STRANGER}; name the"):
            check_code_folder(link / "missing")


def test_a_held_folder_is_the_opened_one(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with held_folder(tmp_path / "folder") as held:
        (held / "before").write_text("own")
        (tmp_path / "folder").rename(tmp_path / "moved")
        (tmp_path / "folder").mkdir()
        (tmp_path / "folder" / "before").write_text("planted")
        assert (held / "before").read_text() == "own"
    (tmp_path / "folder").chmod(0o777)
    with pytest.raises(UntrustedError, match="others can write to it"), held_folder(tmp_path / "folder"):
        pass
