"""Builds the optional kernel; everything else about packaging is in pyproject.toml.

``brokerd/kernel/_*.pyx`` are Cython versions of the plain-Python modules beside them. Without a C compiler or Cython
they are left out with a warning, and the broker uses the slower plain modules.
"""

import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext


class OptionalBuildExt(build_ext):
    """Builds the extensions that can be built and warns of the others.

    A failed extension does not fail the installation.
    """

    def run(self) -> None:
        try:
            super().run()
        except Exception as error:  # a missing or broken tool chain can raise any exception
            self.leave_out("the kernel", error)

    def build_extension(self, ext: Extension) -> None:
        try:
            super().build_extension(ext)
        except Exception as error:
            self.leave_out(ext.name, error)

    def copy_extensions_to_source(self) -> None:
        """For editable and ``--inplace`` builds, copy the extensions that were built to the folder of their sources."""
        build = Path(self.build_lib)
        self.extensions = [ext for ext in self.extensions if (build / self.get_ext_filename(ext.name)).exists()]
        super().copy_extensions_to_source()

    def get_outputs(self) -> list[str]:
        return [output for output in super().get_outputs() if Path(output).exists()]

    @staticmethod
    def leave_out(name: str, error: Exception) -> None:
        print(
            f"warning: {name} was not compiled ({error}); the plain-Python kernel serves, at a fraction of the speed",
            file=sys.stderr,
        )


def extensions() -> list[Extension]:
    sources = sorted(Path("brokerd/kernel").glob("_*.pyx"))
    try:
        from Cython.Build import cythonize
    except ImportError as error:
        OptionalBuildExt.leave_out("the kernel", error)
        return []
    built: list[Extension] = []
    for source in sources:
        name = ".".join(source.with_suffix("").parts)
        headers = [path.as_posix() for path in sorted(source.parent.glob("*.h"))]
        flags = ["-O3", "-g0"]  # without debugging symbols, which make the extensions five times as large
        extension = Extension(name, [source.as_posix()], depends=headers, extra_compile_args=flags, optional=True)
        try:
            built += cythonize([extension], language_level=3, quiet=True)
        except Exception as error:
            OptionalBuildExt.leave_out(name, error)
    return built


setup(ext_modules=extensions(), cmdclass={"build_ext": OptionalBuildExt})
