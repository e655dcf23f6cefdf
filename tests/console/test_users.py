"""The users file: hashes that verify, lines that are refused with their number."""

import logging
from pathlib import Path

import pytest

from sparrowmq.console.config import ConsoleError
from sparrowmq.console.users import PasswordHash, User, UserRole, Users, UsersFile, write_user


def test_a_written_user_logs_in_with_the_right_password_only(tmp_path: Path) -> None:
    path = tmp_path / "users.txt"
    write_user(path, "ada", UserRole.OPERATOR, "correct horse")
    write_user(path, "bob", UserRole.READER, "battery staple")
    write_user(path, "ada", UserRole.READER, "another horse")
    users = Users.read(path)
    assert users.check("ada", "another horse") == User("ada", UserRole.READER)
    assert users.check("bob", "battery staple") == User("bob", UserRole.READER)
    assert users.check("ada", "correct horse") is None
    assert users.check("eve", "another horse") is None
    assert path.stat().st_mode & 0o077 == 0, "only its owner reads it"
    assert "horse" not in path.read_text()


def test_hashes_are_for_the_owner_alone_and_a_file_of_another_program_stays(tmp_path: Path) -> None:
    path, foreign = tmp_path / "users.txt", tmp_path / "users.txt.new"
    foreign.write_text("of another program")
    foreign.chmod(0o644)
    write_user(path, "ada", UserRole.OPERATOR, "correct horse")
    assert path.stat().st_mode & 0o777 == 0o600
    assert foreign.read_text() == "of another program"
    assert set(tmp_path.iterdir()) == {path, foreign}


def test_equal_passwords_have_different_hashes() -> None:
    assert str(PasswordHash.of("correct horse")) != str(PasswordHash.of("correct horse"))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "has no users"),
        ("# only a comment\n", "has no users"),
        ("ada:operator\n", "line 1"),
        ("\nada:king:scrypt$16384$8$1$AA==$AA==\n", "line 2: 'king'"),
        ("a b:reader:scrypt$16384$8$1$AA==$AA==\n", "user name 'a b'"),
        ("ada:reader:md5$16384$8$1$AA==$AA==\n", "must be scrypt"),
        ("ada:reader:scrypt$16384$8$1$!$AA==\n", "is not base64"),
        ("ada:reader:scrypt$1073741824$8$1$AA==$AA==\n", "more than 256 MiB"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused(text: str, says: str, tmp_path: Path) -> None:
    path = tmp_path / "users.txt"
    path.write_text(text)
    with pytest.raises(ConsoleError, match=says):
        Users.read(path)


def test_a_file_that_changes_is_read_again_and_a_broken_one_changes_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "users.txt"
    write_user(path, "ada", UserRole.OPERATOR, "correct horse")
    users = UsersFile(path)
    assert users.check("bob", "battery staple") is None
    write_user(path, "bob", UserRole.READER, "battery staple")
    assert users.check("bob", "battery staple") == User("bob", UserRole.READER)
    good = path.read_text()
    with caplog.at_level(logging.WARNING, "sparrowmq.console"):
        path.write_text("bob:king\n")
        for _ in range(2):
            assert users.check("bob", "battery staple") == User("bob", UserRole.READER)
        path.unlink()
        assert users.check("bob", "battery staple") == User("bob", UserRole.READER)
    first, second = [record.getMessage() for record in caplog.records]
    assert "the previous users stay" in first and "line 1" in first
    assert "cannot be read" in second
    path.write_text(good.replace("bob:reader", "bob:operator"))
    assert users.check("bob", "battery staple") == User("bob", UserRole.OPERATOR)


@pytest.mark.parametrize(("name", "password"), [("ada", "short"), ("a:b", "correct horse")])
def test_a_short_password_or_an_odd_name_is_not_written(
    name: str, password: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=r"password|user name"):
        write_user(tmp_path / "users.txt", name, UserRole.READER, password)
    assert not (tmp_path / "users.txt").exists()
