"""The fleet's etcd of the test's cluster: on the machine of the control plane, with certificates for its members and clients."""

import base64

from fabric import CONTROL
from machine import call, until

PORT = 2479
ENDPOINT = f"{CONTROL}:{PORT}"
# The secret by which the chart's pods reach it.
SECRET = "weft-etcd"


class Fleet:
    """An etcd that accepts the clients of one authority."""

    def __init__(self, control):
        self.control, self.folder = control, control.folder / "fleet"

    def start(self):
        self.folder.mkdir()
        self.certify("ca", "fleet")
        self.certify("server", "etcd", *self.signed(f"IP:{CONTROL}"))
        self.certify("tls", "weft", *self.signed("DNS:weft"))
        peers = f"http://127.0.0.1:{PORT + 1}"
        self.control.spawn(
            "fleet-etcd",
            "etcd",
            "--name=fleet",
            f"--data-dir={self.folder}/data",
            f"--listen-client-urls=https://{ENDPOINT}",
            f"--advertise-client-urls=https://{ENDPOINT}",
            f"--listen-peer-urls={peers}",
            f"--initial-advertise-peer-urls={peers}",
            f"--initial-cluster=fleet={peers}",
            f"--cert-file={self.folder}/server.crt",
            f"--key-file={self.folder}/server.key",
            f"--trusted-ca-file={self.folder}/ca.crt",
            "--client-cert-auth",
            "--unsafe-no-fsync",
        )
        until("the fleet's etcd answers", lambda: not self.etcdctl("endpoint", "health", check=False).returncode)

    def signed(self, name):
        """Returns the options for a certificate of the authority that is no authority itself."""
        return "-extensions", "usr_cert", "-addext", f"subjectAltName={name}", "-CA", self.folder / "ca.crt", "-CAkey", self.folder / "ca.key"

    def certify(self, file, name, *options):
        key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2")
        files = ("-keyout", self.folder / f"{file}.key", "-out", self.folder / f"{file}.crt")
        call("openssl", "req", "-x509", *key, "-subj", f"/CN={name}", *options, *files)

    def etcdctl(self, *words, **options):
        files = (f"--cacert={self.folder}/ca.crt", f"--cert={self.folder}/tls.crt", f"--key={self.folder}/tls.key")
        return self.control.run("env", "ETCDCTL_API=3", "etcdctl", f"--endpoints=https://{ENDPOINT}", *files, *words, **options)

    def get(self, key):
        """Returns the value of a key, such as `networks/100/settings`; an empty text if there is none."""
        return self.etcdctl("get", "--print-value-only", f"/weft/v1/{key}").stdout.strip()

    def secret(self):
        data = {name: base64.b64encode((self.folder / name).read_bytes()).decode() for name in ("ca.crt", "tls.crt", "tls.key")}
        return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": SECRET, "namespace": "kube-system"}, "data": data}
