#!/bin/sh
set -eu
data=/var/lib/postgresql/data/cluster
if ! [ -s "$data/PG_VERSION" ]; then
    printf '%s' "$POSTGRES_PASSWORD" > /tmp/password
    initdb --pgdata "$data" --username "$POSTGRES_USER" --pwfile /tmp/password --auth-host scram-sha-256 --auth-local trust > /dev/null
    echo "host all all all scram-sha-256" >> "$data/pg_hba.conf"
    pg_ctl --pgdata "$data" --wait --options "-c listen_addresses= -c unix_socket_directories=/tmp" start > /dev/null
    createdb --host /tmp --username "$POSTGRES_USER" "$POSTGRES_DB" 2>/dev/null || true
    pg_ctl --pgdata "$data" --wait stop > /dev/null
fi
exec postgres -D "$data" -c "listen_addresses=*" -c unix_socket_directories=/var/run/postgresql
