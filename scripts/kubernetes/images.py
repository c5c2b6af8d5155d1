"""Container images for tests, made of this machine's files: no registry is needed."""

import hashlib
import io
import json
import re
import subprocess
import tarfile
from pathlib import Path

BUSYBOX = Path("/usr/bin/busybox")
# The commands of busybox that tests call by name.
APPLETS = ("sh", "sleep", "cat", "ping", "ip", "wget", "nc", "mkdir", "cp", "sed", "awk", "chmod", "env", "ls", "mv", "printf", "grep", "timeout")
DOMAIN = "weft.test"


def name_of(image):
    """Returns the name of an image with its tag, as pods write it."""
    return f"{DOMAIN}/{image}:1"


def write(archive, image, programs=(), files=None):
    """Writes an image as a tar file of an OCI layout: busybox, programs with their libraries, and files by their paths."""
    tree = {"/bin/busybox": BUSYBOX}
    tree.update({f"/usr/bin/{Path(program).name}": Path(program) for program in programs})
    tree.update(files or {})
    for program in programs:
        tree.update({str(library): library for library in libraries(program)})
    layer = pack(tree, links={f"/bin/{applet}": "busybox" for applet in APPLETS})
    blobs, digest = {}, lambda data: "sha256:" + hashlib.sha256(data).hexdigest()

    def blob(data, kind):
        blobs[digest(data)] = data
        return {"mediaType": f"application/vnd.oci.image.{kind}", "digest": digest(data), "size": len(data)}

    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Entrypoint": ["/bin/busybox", "sleep", "2147483647"], "Env": ["PATH=/bin:/usr/bin:/usr/sbin:/sbin"]},
        "rootfs": {"type": "layers", "diff_ids": [digest(layer)]},
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": blob(json.dumps(config).encode(), "config.v1+json"),
        "layers": [blob(layer, "layer.v1.tar")],
    }
    entry = blob(json.dumps(manifest).encode(), "manifest.v1+json")
    entry["annotations"] = {"io.containerd.image.name": name_of(image), "org.opencontainers.image.ref.name": "1"}
    index = {"schemaVersion": 2, "manifests": [entry]}
    with tarfile.open(archive, "w") as out:
        add(out, "oci-layout", json.dumps({"imageLayoutVersion": "1.0.0"}).encode())
        add(out, "index.json", json.dumps(index).encode())
        for name, data in blobs.items():
            add(out, "blobs/" + name.replace(":", "/"), data)


def libraries(program):
    """Returns the shared libraries of a program, and the dynamic linker."""
    printed = subprocess.run(["ldd", str(program)], capture_output=True, text=True, check=False).stdout
    return [Path(path) for path in re.findall(r"(/\S+) \(0x", printed)]


def pack(tree, links):
    """Returns a layer with files and symbolic links."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as out:
        folders = {"/tmp", "/etc", "/proc", "/sys", "/dev", "/run", "/var"}
        for path in [*tree, *links]:
            folders.update(str(parent) for parent in Path(path).parents if str(parent) != "/")
        for folder in sorted(folders):
            entry = tarfile.TarInfo(folder.lstrip("/"))
            entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            out.addfile(entry)
        for path, source in sorted(tree.items()):
            add(out, path.lstrip("/"), source.read_bytes(), mode=0o755)
        for path, target in sorted(links.items()):
            entry = tarfile.TarInfo(path.lstrip("/"))
            entry.type, entry.linkname = tarfile.SYMTYPE, target
            out.addfile(entry)
    return data.getvalue()


def add(out, name, data, mode=0o644):
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(data), mode
    out.addfile(entry, io.BytesIO(data))
