# The same environment as `make setup`, in a container.
#
#   docker build -t ninegrid .
#   docker run --name loop ninegrid                        # make repro
#   docker start -a loop                                   # and again: nothing is left to do
#   docker cp loop:/home/ninegrid/project/data results
#   docker run --rm ninegrid test                          # make test
#
# For a GPU choose a base image with CUDA (if it has no Python, that of its distribution is installed,
# which must be 3.11 or 3.12), and run with --gpus all:
#   docker build --build-arg BASE=nvidia/cuda:12.9.1-runtime-ubuntu24.04 -t ninegrid .
# Where packages come from is up to pip's own variables, which can be given as build arguments.
ARG BASE=python:3.11-slim
FROM ${BASE}

# git and make run the project; libgomp is what bitsandbytes was linked with.  Their versions are those of
# the base image's distribution, on purpose.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends git make libgomp1 \
    && if ! command -v python3 > /dev/null; then \
         apt-get install --yes --no-install-recommends python3 python3-venv; \
       fi \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --create-home --uid 10001 ninegrid

USER 10001
WORKDIR /home/ninegrid/project
ENV PIP_NO_CACHE_DIR=1 \
    PYTHONUNBUFFERED=1 \
    HF_HUB_OFFLINE=0

# The packages come before the sources: their layer is made anew only when the lock changes.
ARG PIP_INDEX_URL PIP_EXTRA_INDEX_URL PIP_CONSTRAINT
COPY --chown=10001 Makefile requirements.lock ./
RUN make packages

COPY --chown=10001 . .
RUN make setup

ENTRYPOINT ["make"]
CMD ["repro"]
