# The same environment as `make setup`, in a container, for x86-64 and for 64-bit Arm (DGX Spark).
#
#   docker build -t ninegrid .
#   docker run --name loop ninegrid                        # make repro
#   docker start -a loop                                   # and again: nothing is left to do
#   docker cp loop:/home/ninegrid/project/data results
#   docker run --rm ninegrid test                          # make test
#
# With a GPU: `--gpus all` after `docker run`.  No other base image is needed: on both architectures pip brings
# CUDA's own libraries with torch, pinned by torch to exact versions, and the host gives the driver.  An image
# with CUDA or another system can still be the base, as long as it has apt-get; without a Python 3.11 or 3.12
# that of its distribution is installed, which must be one of these:
#   docker build --build-arg BASE=nvidia/cuda:13.0.1-base-ubuntu24.04 -t ninegrid .
# For both architectures at once (the other one is emulated, and slow):
#   docker buildx build --platform linux/amd64,linux/arm64 -t REGISTRY/ninegrid --push .
# Without CUDA, for CPUs: --build-arg PIP_EXTRA_INDEX_URL with an index of torch's CPU wheels.
#
# .docker/compose.yaml runs it with an MLflow server beside it and its state in volumes.
ARG BASE=python:3.11-slim-bookworm
# The base is an argument on purpose: it has a version.
# hadolint ignore=DL3006
FROM ${BASE}

# git and make run the project; libgomp is what bitsandbytes was linked with; Triton compiles a few lines of C
# against Python's headers when its first kernel runs.  Their versions are those of the base image's
# distribution, on purpose.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends ca-certificates gcc git libc6-dev libgomp1 make \
    && if ! command -v python3 > /dev/null; then \
         apt-get install --yes --no-install-recommends python3 python3-dev python3-venv; \
       fi \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --create-home --uid 10001 ninegrid

USER 10001
WORKDIR /home/ninegrid/project
# What the driver gives to a container: its programming interface, and nvidia-smi.
ENV PIP_NO_CACHE_DIR=1 \
    PYTHONUNBUFFERED=1 \
    HF_HUB_OFFLINE=0 \
    HF_HOME=/home/ninegrid/huggingface \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility

# The packages come before the sources: their layer is made anew only when the lock changes.
ARG PIP_INDEX_URL PIP_EXTRA_INDEX_URL PIP_CONSTRAINT
COPY --chown=10001 Makefile requirements.lock ./
RUN make packages

COPY --chown=10001 . .
# A volume that is mounted on one of these folders begins as the user's, as they do.
RUN make setup && mkdir -p .ninegrid .dvc/cache data "$HF_HOME" /home/ninegrid/mlflow

ENTRYPOINT ["make"]
CMD ["repro"]
