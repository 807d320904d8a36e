# One command for each thing a person does. Every target sets up what it needs by itself.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# Several processes share the machine's cores: each gets one compute thread unless the caller says otherwise.
export OMP_NUM_THREADS ?= 1
export OPENBLAS_NUM_THREADS ?= 1
export MKL_NUM_THREADS ?= 1
# Where Python may write no bytecode (many containers say so), each of a thousand processes compiles all it imports.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup demo demo-torch demo-cluster test test-fast test-gpu test-kube test-kube-smoke manifests soak chaos chaos-short world world-ci world-hunt lint format protos lock docs docs-site bench figures clean
help:  ## list the targets
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 16

setup: $(STAMP)  ## create .venv with the pinned packages
$(STAMP): requirements/lock.txt pyproject.toml $(wildcard elastic_ps/native/kernels.*)
	PYTHON=$(PYTHON) ./requirements/install.sh $(VENV) $<
	@touch $@

# The second environment: numpy 2, and no MXNet, which holds the first one at numpy 1.26.
VENV_NUMPY2 := .venv-numpy2
STAMP_NUMPY2 := $(VENV_NUMPY2)/.installed
$(STAMP_NUMPY2): requirements/lock-numpy2.txt pyproject.toml $(wildcard elastic_ps/native/kernels.*) | $(STAMP)
	PYTHON=$(PYTHON) UV=$(BIN)/uv ./requirements/install.sh $(VENV_NUMPY2) $<
	@touch $@

demo: setup  ## scale jobs while they train: an emulated device, then real digits; build/demo/timeline.png
	$(BIN)/python -m examples.demo

demo-torch: $(STAMP_NUMPY2)  ## the same with PyTorch, in the environment without MXNet; build/demo-torch/timeline.png
	$(VENV_NUMPY2)/bin/python -m examples.demo --torch

demo-cluster: setup  ## eight jobs on a cluster of this machine, by DRF and by a learnt policy: four or five minutes
	$(BIN)/python -m examples.demo_cluster

# Two more than cores: with one more they were busy for 62% of the time, as the slow tests wait for processes.
WORKERS ?= $(shell expr $$(nproc) + 2)
PARALLEL = -n $(WORKERS) --dist worksteal
# TESTS_FAST: fewer examples of each property. MXNet's tests are not even imported, as each worker would import MXNet.
test-fast: export TESTS_FAST = 1
test-fast: setup  ## the pure tests that take little each, and a part of each sweep: a minute
	$(BIN)/python -m pytest -n $$(( 3 * $$(nproc) )) --dist worksteal -m "not (slow or mxnet or kube or gpu)" --ignore tests/elastic_ps/mxnet $(TESTS)

# Each test runs once, and in the first environment too where numpy's version can change what it finds: there with
# fewer examples (TESTS_FAST). Where those tests lie is named, since each of the workers would import all others.
OF_MXNET = tests/docs/test_pages.py tests/dl2_scheduler/figures/test_live_figures.py tests/dl2_scheduler/policies \
	tests/e2e $(addprefix tests/elastic_ps/, core mxnet optimizers server/updates system/process worker/script)
test: setup $(STAMP_NUMPY2)  ## all tests but those on Kubernetes and GPUs: with numpy 2 and no MXNet, then with MXNet
	$(VENV_NUMPY2)/bin/python -m pytest $(PARALLEL) -m "not (kube or gpu)"
	TESTS_FAST=1 $(BIN)/python -m pytest $(PARALLEL) -m "(mxnet or numeric) and not (kube or gpu)" $(OF_MXNET)

test-gpu: $(STAMP_NUMPY2)  ## what PyTorch's jobs do on a GPU; where there is none these tests fail
	$(VENV_NUMPY2)/bin/python -m pytest -m gpu tests/elastic_ps/torch tests/e2e

test-kube: setup  ## every test on real pods, on our own test cluster (../shared/tools/kube)
	$(BIN)/python -m pytest -m kube tests/kube -s

test-kube-smoke: setup  ## one job from apply to Completed, one scaling, one server killed, uninstall; under 6 minutes
	$(BIN)/python -m pytest -m kube tests/kube/test_kube_smoke.py -s

HELM ?= $(firstword $(shell command -v helm) $(wildcard $(HOME)/.cache/kube-testbed/bin/helm))
IMAGE ?=
manifests:  ## plain YAML for kubectl, into build/manifests.yaml: IMAGE=HOST/dl2/runtime:0.1.0
	@test -n "$(IMAGE)" || { echo "manifests: needs IMAGE=HOST/dl2/runtime:0.1.0, one that you have built and pushed, as nobody publishes one" >&2; exit 1; }
	@test -n "$(HELM)" || { echo "manifests: needs helm 3 in PATH, or HELM=/path/to/helm" >&2; exit 1; }
	@mkdir -p build
	$(HELM) template dl2 k8s/chart --namespace dl2-system --no-hooks --kube-version 1.34 \
		--set operator.image="$(IMAGE)" --set scheduler.image="$(IMAGE)" > build/manifests.yaml
	@echo "kubectl create namespace dl2-system; kubectl apply --namespace dl2-system -f build/manifests.yaml"
	@echo "before you delete them again, while the operator runs: kubectl delete ej --all --all-namespaces"

soak: setup  ## random scalings and kills of real jobs, about a minute
	$(BIN)/python -m tests.e2e.soak

SEED ?= 1
FAULTS ?= 247
LANES ?= 4
chaos: setup  ## seeded faults of processes, links and the disk in real jobs, at every phase: SEED=1 FAULTS=247, about 25 minutes
	$(BIN)/python -m tests.chaos --seed $(SEED) --faults $(FAULTS) --lanes $(LANES)

chaos-short: setup  ## some of them, in five minutes
	$(BIN)/python -m tests.chaos --seed $(SEED) --faults 30 --lanes $(LANES)

SEEDS ?= 0-100
world: setup  ## whole jobs in a simulated world, on all cores, one for each seed: SEEDS=0-100
	$(BIN)/python -m tests.world --seeds $(SEEDS)

# Of each range of seeds some: the later, the more may happen to a job (tests/world/faults/draw.py says what).
world-ci: setup  ## 300 fixed seeds, of which some have no servers, and 100 that the commit's hash decides about
	$(BIN)/python -m tests.world --seeds 0-60,300-340,40000-40040,760000-760040,830000-830040,1000000-1000080 --fresh 100

world-hunt: setup  ## each bug of tests/world/mutations.py, planted: which seed finds it? SEEDS=0-10000
	$(BIN)/python -m tests.world --mutation all --seeds $(SEEDS)

lint: setup  ## format, lint, types, layers, the rules of the house, generated code
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache  # its cache does not see every change of branch
	$(BIN)/python -m tests.house
	$(BIN)/python -m protos.generate --check

format: setup  ## rewrite the sources as the linter wants them
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

protos: setup  ## regenerate the protobuf code
	$(BIN)/python -m protos.generate

docs: setup  ## redraw what the docs take from the code
	$(BIN)/python -m docs.generated_sections

SITE := build/site-venv
$(SITE)/.installed: requirements/docs.txt
	$$(command -v $(PYTHON) || echo python3) -m venv $(SITE)
	$(SITE)/bin/python -m pip install --quiet --disable-pip-version-check -r $<
	@touch $@

docs-site: $(SITE)/.installed  ## the docs as a site, into build/site; a link that leads nowhere is an error
	NO_MKDOCS_2_WARNING=1 PYTHONPATH=. $(SITE)/bin/mkdocs build --strict
	@echo "written: build/site/index.html"

# Run by themselves (`make bench-NAME` or `python -m benchmarks.NAME`): what needs something that is not here (gpu,
# mxnet_tests, placement_pairs, sia), what measured numbers that the project keeps (measure_interference, move_cost), and
# what takes hours or was made for one question (forecasts_processes, live_learning_processes, live_sharing_speeds,
# placement_graph_headroom). bench-cluster runs cluster_kube and cluster_pods.
bench: bench-aggregation bench-allreduce bench-assignment bench-baselines bench-chic bench-cluster bench-compression bench-coordinator_restart bench-dataplane bench-exploration bench-forecasts bench-generality bench-group_checkpoint bench-joins bench-kills bench-learning bench-live_learning bench-live_sharing bench-live_vs_simulated bench-liveness bench-migration bench-mixed_jobs bench-paper_learning bench-placement bench-placement_graph bench-placement_graph_learning bench-placement_harmony bench-placement_harmony_paper bench-placement_live bench-placement_measured bench-placement_reward bench-replicas bench-scaling_cost bench-scheduler bench-torch  ## all benchmarks but those that the Makefile names above it; hours
bench-%: setup
	$(BIN)/python -m benchmarks.$*

FIGURES := 9 10 13 14 15 16 17 18 table2 loss reward
LIVE_FIGURES := 11 12
figures: setup  ## draw the DL2 paper's figures from runs of our own, into build/figures
	@set -e; for number in $(FIGURES); do \
	    $(BIN)/dl2 figure $$number --out build/figures $(if $(SPEEDS),--speeds $(SPEEDS)); \
	done
	@set -e; for number in $(LIVE_FIGURES); do $(BIN)/dl2 figure $$number --out build/figures; done

NUMPY2_EXTRAS := torch scheduler kubernetes learning figures gym demo dev   # all but mxnet
lock:  ## pin again what pyproject asks for
	uv pip compile --quiet --universal --python-version 3.11 --all-extras --no-header --no-emit-index-url \
	    --no-emit-find-links pyproject.toml -o requirements/lock.txt
	sed '/^numpy==/d' requirements/lock.txt > requirements/lock-numpy2.txt  # the others as in the first lock
	uv pip compile --quiet --universal --python-version 3.11 $(addprefix --extra ,$(NUMPY2_EXTRAS)) --no-header \
	    --no-emit-index-url --no-emit-find-links pyproject.toml -o requirements/lock-numpy2.txt
	uv pip compile --quiet --universal --python-version 3.11 --no-header --no-emit-index-url --no-emit-find-links \
	    --group docs -o requirements/docs.txt

clean:  ## remove what was built
	rm -rf build $(VENV) $(VENV_NUMPY2)
