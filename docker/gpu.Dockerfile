# The service for NVIDIA GPUs, without a model. In the repository's root:
#   docker build --file docker/gpu.Dockerfile --tag registry.example.com/specdec-serve:0.1.0-gpu .
FROM python:3.11-slim-bookworm AS build

# torch brings its own CUDA libraries: the node has the driver, the image needs no CUDA.
ARG TORCH_INDEX=https://download.pytorch.org/whl/cu130
ENV PIP_NO_CACHE_DIR=1 \
    PIP_DISABLE_PIP_VERSION_CHECK=1
RUN python -m venv /opt/venv
ENV PATH=/opt/venv/bin:$PATH

# torch first, so that nothing later chooses another build of it.
WORKDIR /source
COPY requirements.lock ./
RUN pip install --constraint requirements.lock --extra-index-url "$TORCH_INDEX" torch

COPY pyproject.toml README.md LICENSE NOTICE ./
COPY specdec_core specdec_core
COPY deployments deployments
COPY proto proto
RUN pip install --constraint requirements.lock ".[grammar,otlp]"

FROM python:3.11-slim-bookworm

# wget: the operator's probes call it. gcc: Triton and the CPU kernels are built at the first start
# into the home folder.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends gcc libc6-dev wget \
    && rm -rf /var/lib/apt/lists/* \
    && groupadd --gid 1000 specdec \
    && useradd --uid 1000 --gid 1000 --create-home specdec

COPY --from=build /opt/venv /opt/venv
COPY docker/ray /opt/specdec/bin/ray
# Nothing is written but /tmp and /home/specdec: the rest may be mounted read-only.
ENV PATH=/opt/specdec/bin:/opt/venv/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
WORKDIR /home/specdec
USER 1000:1000
EXPOSE 8000 9000
CMD ["specdec", "serve", "/models/Qwen3-8B", "--host", "0.0.0.0"]
