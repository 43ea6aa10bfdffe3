"""Where the files of the wheel are."""
from pathlib import Path

prefix: Path = Path(__file__).resolve().parent / "installation"
