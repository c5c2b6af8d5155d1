#!/bin/sh
# Prepares a node for the overlay, in the first container of a pod of the DaemonSet: the daemon's configuration, the CNI plugin and
# its network. The node is the host of HOSTS that has the address NODE_ADDRESS; its place in the list gives it the
# part NETWORK.<place>.0/24 of the pods' addresses. ALLOW_ADDRESSES has the kinds of addresses that pods may choose by their
# annotations, `mac` and `ips`; none by default. Folders of the node are below ROOT.
#
# With ETCD, the client ports of etcd's members, the node is a host of the fleet there, by the name NODE_NAME; its networks and the other
# nodes come from etcd, from keys below ETCD_PREFIX. ETCD_TLS is the folder of ca.crt, tls.crt and tls.key, as the daemon sees it. With AWAIT_POLICIES=true nothing
# passes to and from a pod before the controller has written the pod's policies.
set -eu

place=0 own='' peers=''
for host in $HOSTS; do
    if [ "$host" = "$NODE_ADDRESS" ]; then own=$place; else peers="$peers${peers:+, }\"$host\""; fi
    place=$((place + 1))
done
if [ -z "$own" ] || [ "$own" -gt 255 ]; then
    echo "install: error: $NODE_ADDRESS is not among the first 256 hosts of the ConfigMap weft: $HOSTS" >&2
    exit 1
fi
gateway=$NETWORK.$own.1

allowed='' capabilities=''
for kind in ${ALLOW_ADDRESSES:-}; do
    case $kind in
    mac | ips) ;;
    *)
        echo "install: error: ALLOW_ADDRESSES of the ConfigMap weft has $kind; it may have mac and ips" >&2
        exit 1
        ;;
    esac
    allowed="$allowed${allowed:+, }\"$kind\"" capabilities="$capabilities${capabilities:+, }\"$kind\": true"
done

await=''
if [ "${AWAIT_POLICIES:-}" = true ]; then
    if [ -z "${ETCD:-}" ]; then
        echo "install: error: AWAIT_POLICIES of the ConfigMap weft is true without ETCD, from which the policies come" >&2
        exit 1
    fi
    await='"awaitPolicies": true,'
fi

# The table of the network, or of the fleet that has it.
others() {
    if [ -z "${ETCD:-}" ]; then
        printf '[[network]]\nvni = %s\npeers = [%s]\n' "$VNI" "$peers"
        return
    fi
    endpoints=''
    for member in $ETCD; do endpoints="$endpoints${endpoints:+, }\"$member\""; done
    printf '[fleet]\nname = "%s"\nprefix = "%s"\n\n' "$NODE_NAME" "${ETCD_PREFIX:-/weft}"
    printf '[fleet.etcd]\nendpoints = [%s]\n' "$endpoints"
    if [ -n "${ETCD_TLS:-}" ]; then
        printf 'tls = { ca = "%s/ca.crt", certificate = "%s/tls.crt", key = "%s/tls.key" }\n' "$ETCD_TLS" "$ETCD_TLS" "$ETCD_TLS"
    fi
}

mkdir -p "$ROOT/etc/weft" "$ROOT/etc/cni/net.d" "$ROOT/opt/cni/bin"

# Each file is whole at any time, and replaced as a whole.
replace() { cat >"$1.part" && chmod "$2" "$1.part" && mv "$1.part" "$1"; }

replace "$ROOT/etc/weft/vpc.toml" 600 <<END
[host]
address = "$NODE_ADDRESS"

$(others)

# The pods' way to the node and out of the network.
[[port]]
name = "host"
vni = $VNI
mac = "$(printf '02:00:0a:f4:00:%02x' "$own")"
addresses = ["$gateway/16"]
tap = { interface = "weft0", persistent = true }
END

for program in $PLUGINS; do
    replace "$ROOT/opt/cni/bin/${program##*/}" 755 <"$program"
done

# The network comes last: with it the runtime calls the plugin.
replace "$ROOT/etc/cni/net.d/10-weft.conflist" 644 <<END
{
  "cniVersion": "1.0.0",
  "name": "pods",
  "plugins": [
    {
      "type": "weft-cni",
      "vni": $VNI,
      $await
      "capabilities": { $capabilities },
      "allowAddresses": [$allowed],
      "ipam": {
        "type": "host-local",
        "ranges": [[{
          "subnet": "$NETWORK.0.0/16", "gateway": "$gateway",
          "rangeStart": "$NETWORK.$own.2", "rangeEnd": "$NETWORK.$own.254"
        }]],
        "routes": [{ "dst": "0.0.0.0/0" }]
      }
    }
  ]
}
END
