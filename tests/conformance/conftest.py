"""The fixtures of the host tests, for tests of whole programs."""
import importlib.util
import pathlib

_spec = importlib.util.spec_from_file_location("host_conftest", pathlib.Path(__file__).parents[1] / "host" / "conftest.py")
_host = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_host)
globals().update({name: value for name, value in vars(_host).items() if not name.startswith("__")})
