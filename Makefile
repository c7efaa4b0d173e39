# The two main commands are `make up` and `make test`.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Without bytecode (PYTHONDONTWRITEBYTECODE) each process would compile a thousand modules at its start.
COMPILE := $(BIN)/python -m compileall -q
.DEFAULT_GOAL := help

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

$(VENV)/.installed: pyproject.toml requirements.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Moxwell needs Python 3.11 or newer: make PYTHON=python3.11 …")'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing Moxwell into $(VENV)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps -e .
	@$(COMPILE) src
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed requirements-dev.lock
	@echo "installing what the tests need into $(VENV)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-dev.lock
	@touch $@

install: $(VENV)/.installed ## install Moxwell in .venv, and say how to have it on PATH
	@echo "Moxwell is $(BIN)/moxwell. To call it moxwell everywhere: make wheel && pipx install dist/moxwell-*.whl"
	@echo "or, for this checkout only: ln -s $(CURDIR)/$(BIN)/moxwell ~/.local/bin/moxwell"

dev: $(VENV)/.installed-dev ## install Moxwell and the test dependencies in .venv

up: $(VENV)/.installed ## start the lab with a sample tenant cluster
	@$(BIN)/moxwell up

down: $(VENV)/.installed ## stop the lab; its state is kept
	@$(BIN)/moxwell down

status: $(VENV)/.installed ## show what runs and what it waits for
	@$(BIN)/moxwell status

lint: dev ## types and style
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

NODE := kubelet kubeadm

envtest: dev ## upstream programs for the tests, built once, outside the tree
	@PYTHONPATH=tools $(BIN)/python -m envtest
	@PYTHONPATH=tools $(BIN)/python -m envtest.browser
	@PYTHONPATH=tools $(BIN)/python -m envtest.disks
	@PYTHONPATH=tools $(BIN)/python -m envtest.debian
	@PYTHONPATH=tools $(BIN)/python -m envtest $(NODE) && PYTHONPATH=tools:tests $(BIN)/python -m realnode.template \
	  || { echo "NOT BUILT: the tree of a genuine node; its tests are skipped"; test -z "$$CI"; }

# One worker more than cores: tests with live programs mostly wait.
WORKERS ?= $(shell echo $$(($$(getconf _NPROCESSORS_ONLN) + 1)))

test: lint envtest ## run all tests (ARGS="-k name" selects)
	@$(COMPILE) src tools tests bench
	@$(BIN)/pytest -n $(WORKERS) --dist loadgroup --durations 20 $(ARGS)

unit: dev ## run the unit tests only: under two minutes, no Go needed
	@$(COMPILE) src tools tests
	@$(BIN)/pytest -n $(WORKERS) --dist loadgroup $(or $(ARGS),tests/unit)

bench: dev envtest ## measure ratios against peers in one run (only="bench/pve.py …")
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[bench]'
	@set -e; for each in $(or $(only),$(shell grep -l '^Run: ``python bench/' bench/*.py)); do \
	  echo "== $$each"; PYTHONPATH=tools:tests/conformance:bench nice $(BIN)/python $$each; done

REAL := etcd kube-apiserver kube-controller-manager kube-scheduler kubectl $(NODE) snapshot-controller kube-proxy \
  coredns metrics-server konnectivity-server konnectivity-agent kube-vip

real: dev ## run genuine nodes (containers and QEMU) behind the simulated Proxmox; needs root
	@PYTHONPATH=tools $(BIN)/python -m envtest $(REAL)
	@PYTHONPATH=tools:tests $(BIN)/python -m realnode.template
	@PYTHONPATH=tools:tests $(BIN)/python -m realnode.driver_image
	@PYTHONPATH=tools:tests $(BIN)/python -m realnode.control_plane_images
	@PYTHONPATH=tools:tests $(BIN)/python -m realnode.kernel
	@MOXWELL_REAL=1 unshare --net --pid --fork --kill-child --mount-proc $(BIN)/pytest tests/real $(ARGS)

peers: dev envtest ## compare with CAPMOX, proxmox-csi, proxmox-ccm and karpenter-provider-proxmox
	@PYTHONPATH=tools:tests:bench nice $(BIN)/python -m peers $(ARGS)

LOCK := uv pip compile pyproject.toml --universal --generate-hashes --no-emit-index-url --no-annotate --quiet --custom-compile-command "make lock"

lock: ## resolve the dependencies and write the lock files with hashes (needs uv)
	@$(LOCK) --upgrade -o requirements.lock
	@$(LOCK) --upgrade --extra dev --python-version 3.11.5 -c requirements.lock -o requirements-dev.lock

wheel: dev ## build the wheel in dist/
	@rm -f dist/moxwell-*.whl
	@$(BIN)/python -m build --wheel --no-isolation --outdir dist . >/dev/null
	@ls dist/moxwell-*.whl

ENGINE ?= podman
IMAGE ?= ghcr.io/moxwell/moxwell:v$(shell sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)

image: wheel ## build the image with podman (ENGINE=docker: with docker)
	@$(ENGINE) build -f Containerfile -t $(IMAGE) .

chart: $(VENV)/.installed ## write the CRDs of charts/moxwell
	@$(BIN)/python release/chart.py

sbom: dev ## write the CycloneDX bill of materials of the locked dependencies to dist/
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[release]'
	@mkdir -p dist
	@$(BIN)/cyclonedx-py requirements requirements.lock --pyproject pyproject.toml \
	  --output-reproducible --of JSON -o dist/moxwell.cdx.json
	@echo dist/moxwell.cdx.json

.PHONY: lock wheel image chart sbom help install dev up down status lint envtest test unit bench real peers
