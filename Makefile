# Two commands for a bare Debian 12 with Python 3.11: `make accept` and `make test`.
# Each does all of its own set-up, and is quick the second time. PYTHON, TORCH_INDEX and
# WHEELS=DIR are told to scripts/setup.sh; OUT and SUITE to the run.

SUITE ?= smoke
OUT ?= out
STACKS ?= out/stacks
ARGS ?=

export PYTHON TORCH_INDEX WHEELS

.PHONY: accept test tamper test-quick test-stacks durations lint generate bench oc bands pin setup clean

accept: ## run the suite on whatever is there and leave a signed report in $(OUT)/<run id>/
	@scripts/setup.sh $(if $(filter smoke,$(SUITE)),cpu-smoke,cpu)
	@.venv/bin/bench accept --suite $(SUITE) --out $(OUT) $(ARGS)

test: ## all tests; those that start a container engine skip where there is none
	@scripts/setup.sh cpu-test
	@.venv/bin/python scripts/run_tests.py $(ARGS)

test-quick: ## the tests below a fifth of a second, for a glance in between: about 3 minutes
	@scripts/setup.sh cpu-test
	@.venv/bin/python scripts/run_tests.py --quick $(ARGS)

tamper: ## 20,000 hostile inputs of `bench verify`, drawn by a seed: less than an hour
	@scripts/setup.sh cpu-test
	@.venv/bin/python scripts/fuzz_verify.py $(ARGS)

test-stacks: ## rows of smoke-all on other stacks, in environments under $(STACKS): minutes, and gigabytes
	@scripts/setup.sh cpu-test
	@.venv/bin/python scripts/other_stacks.py --folder $(STACKS) $(ARGS)

durations: ## record tests/durations.json, by which tests are spread and the quick ones are chosen
	@scripts/setup.sh cpu-test
	@.venv/bin/python scripts/run_tests.py --record-durations $(ARGS)

lint: ## formatting, style and types
	@scripts/setup.sh cpu-test
	@.venv/bin/ruff check
	@.venv/bin/ruff format --check
	@.venv/bin/mypy

generate: ## write what is generated: schemas, workload facts and sizes, the table of workloads, the reference of the verbs, pages of devices
	@scripts/setup.sh cpu-test
	@for script in write_schemas write_workload_facts write_workload_sizes write_workload_checks workload_table \
	    write_cli_reference write_healthy_errors write_clocks record_repeats \
	    write_suite_times write_references write_device_budget write_fleet_tables write_attacks; do \
	    .venv/bin/python scripts/$$script.py || exit; done

bench: ## the figures that the project promises of itself, as ratios and seconds
	@scripts/setup.sh cpu-test
	@.venv/bin/python benchmarks/run.py $(ARGS)

oc: ## simulate the decision rules and write docs/explanation/operating-characteristics.md
	@scripts/setup.sh cpu-test
	@.venv/bin/python scripts/operating_characteristics.py $(ARGS)

bands: ## record workloads/bands/*.json, the loss curves that devices are held to, on this processor
	@scripts/setup.sh cpu
	@.venv/bin/python scripts/record_bands.py $(ARGS)

pin: ## write the digests of the base images, asked of their registries, into the Dockerfiles
	@scripts/setup.sh cpu-smoke
	@.venv/bin/python scripts/pin_images.py $(ARGS)

setup: ## the environment of the tests and nothing else
	@scripts/setup.sh cpu-test

clean: ## everything that can be made again; evidence in $(OUT)/ is kept
	rm -rf .venv build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
