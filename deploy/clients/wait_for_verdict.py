"""Waits for a run's verdict with nothing but kafka-python and fastavro.

    python deploy/clients/wait_for_verdict.py BOOTSTRAP RUN_ID [SECONDS]

Exit codes: 0 PASS, 1 FAIL, 3 INCONCLUSIVE or none in time.
"""

import io
import json
import sys
import time
from pathlib import Path

import fastavro
from fastavro.schema import fingerprint, to_parsing_canonical_form
from kafka import KafkaConsumer

bootstrap, run_id, *rest = sys.argv[1:]
deadline = time.monotonic() + (float(rest[0]) if rest else 3600)
avsc = Path(__file__).resolve().parents[2] / "schemas" / "avro" / "GateStatus.avsc"
schema = json.loads(avsc.read_text())
mark = b"\xc3\x01" + bytes.fromhex(fingerprint(to_parsing_canonical_form(schema), "CRC-64-AVRO"))

consumer = KafkaConsumer(
    "windtunnel.gate-status",
    bootstrap_servers=bootstrap,
    auto_offset_reset="earliest",
    enable_auto_commit=False,
)
while time.monotonic() < deadline:
    time.sleep(0.2)
    for records in consumer.poll(timeout_ms=0).values():
        for record in records:
            if record.key != run_id.encode() or not (record.value or b"").startswith(mark):
                continue
            status = fastavro.schemaless_reader(io.BytesIO(record.value[10:]), schema)
            print(status["verdict"], *(reason["message"] for reason in status["reasons"]), sep="\n")
            sys.exit({"PASS": 0, "FAIL": 1}.get(status["verdict"], 3))
print(f"no verdict on {run_id} in time", file=sys.stderr)
sys.exit(3)
