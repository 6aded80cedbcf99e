from pathlib import Path

import pytest

from foreshock.daemon.discovery.filesystem import filesystem_type

MOUNTS = """\
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
30 22 0:40 / /data rw,relatime - nfs4 server:/export rw
31 30 0:41 / /data/fast rw - lustre mgs:/lfs rw
32 22 0:42 / /mnt/with\\040space rw - fuse.sshfs host:/ rw
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/home/run", "ext4"),
        ("/data/run", "nfs4"),
        ("/data/fast/run", "lustre"),
        ("/database/run", "ext4"),
        ("/mnt/with space/run", "fuse.sshfs"),
    ],
)
def test_the_innermost_mount_that_holds_a_path_tells_its_type(path: str, kind: str) -> None:
    assert filesystem_type(Path(path), MOUNTS) == kind


def test_this_machine_s_own_mounts_can_be_read() -> None:
    assert filesystem_type(Path("/proc")) == "proc"
