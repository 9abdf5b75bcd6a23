#!/bin/sh
# Installs Debian's ClickHouse server for the tests that start their own; as root. No system service
# is started: policy-rc.d says no during the installation, and the unit is disabled afterwards.
set -eu

if command -v clickhouse-server >/dev/null; then
    echo "clickhouse-server is installed"
    exit 0
fi

policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod +x "$policy"
    trap 'rm -f "$policy"' EXIT
fi

export DEBIAN_FRONTEND=noninteractive
apt-get update
apt-get install -y --no-install-recommends clickhouse-server
if command -v systemctl >/dev/null; then
    systemctl disable clickhouse-server >/dev/null 2>&1 || true
fi
