"""Mount the four folders as one package: nothing generic is installed at top level."""

from setuptools import find_packages, setup

MOUNTS = {
    "steproute": "router_core",
    "steproute.plugins": "plugins",
    "steproute.integrations": "integrations",
    "steproute.benchmarks": "benchmarks",
}

packages = []
for name, folder in MOUNTS.items():
    packages += [name, *(f"{name}.{child}" for child in find_packages(folder))]

setup(
    packages=packages,
    package_dir=MOUNTS,
    package_data={name: ["py.typed", "*.html", "*.js", "*.css", "*.jsonl"] for name in packages},
)
