"""Looks for known vulnerabilities in the locked dependencies: `python tools/audit.py [--required] PIP_AUDIT`.

Exit code 1 if there are any. Where pip-audit or its service cannot be reached, the audit says why and exits with 0,
or with 2 after `--required`.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
MAX_SECONDS = 300


def main(words: list[str]) -> int:
    required = "--required" in words
    program = next((word for word in words if not word.startswith("--")), "pip-audit")
    options = ["--format", "json", "--no-deps", "--disable-pip", "--progress-spinner", "off"]
    command = [program, *options, "--requirement", str(ROOT / "requirements.lock")]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=MAX_SECONDS, check=False)
        packages = json.loads(done.stdout)["dependencies"]
    except FileNotFoundError:
        return _unable("pip-audit is not installed", required)
    except subprocess.TimeoutExpired:
        return _unable(f"the service did not answer within {MAX_SECONDS} seconds", required)
    except json.JSONDecodeError:
        said = [line for line in done.stderr.splitlines() if line.strip()]
        return _unable(said[-1].strip() if said else f"pip-audit ended with code {done.returncode}", required)
    skipped = [package["skip_reason"] for package in packages if "skip_reason" in package]
    if len(skipped) == len(packages):  # an index without the service answers for none of them
        return _unable(skipped[0] if skipped else "there is nothing to audit", required)
    found = findings(packages)
    for line in [*skipped, *found]:
        print(line)
    print(f"kibitz: {len(found)} known vulnerabilities in {len(packages) - len(skipped)} locked dependencies.")
    return 1 if found else 0


def _unable(reason: str, required: bool) -> int:
    print(f"kibitz: the dependencies were not audited: {reason}.", file=sys.stderr)
    return 2 if required else 0


def findings(packages: list[dict[str, Any]]) -> list[str]:
    """One line per vulnerability: package, version, identifier and the versions that fix it."""
    return [
        f"{package['name']} {package['version']}: {one['id']}, fixed in {' or '.join(one['fix_versions']) or 'none'}"
        for package in packages
        for one in package.get("vulns", [])
    ]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
