"""Asks for a run with nothing but kafka-python and fastavro.

python deploy/clients/publish_run.py BOOTSTRAP RUN_ID SUITE AGENT_ID
"""

import io
import json
import sys
from pathlib import Path

import fastavro
from fastavro.schema import fingerprint, to_parsing_canonical_form
from kafka import KafkaProducer

bootstrap, run_id, suite, agent_id = sys.argv[1:]
avsc = Path(__file__).resolve().parents[2] / "schemas" / "avro" / "RunRequest.avsc"
schema = json.loads(avsc.read_text())

# Avro single-object encoding: two marker bytes, the schema's CRC-64-AVRO fingerprint, the body.
value = io.BytesIO()
value.write(b"\xc3\x01")
value.write(bytes.fromhex(fingerprint(to_parsing_canonical_form(schema), "CRC-64-AVRO")))
request = {"run_id": run_id, "suite": suite, "agent_id": agent_id}  # the rest has defaults
fastavro.schemaless_writer(value, fastavro.parse_schema(schema), request)

producer = KafkaProducer(bootstrap_servers=bootstrap, acks="all")
producer.send("windtunnel.run-requests", key=run_id.encode(), value=value.getvalue()).get(30)
producer.close()
print(run_id)
