# What learns, with torch: `dl2 serve --learn`, `dl2 bootstrap`, `dl2 learn`. Deciding needs none of it, by a learnt policy neither.
# Build from the repository's folder:
#   docker build -f k8s/images/scheduler.Dockerfile -t dl2/scheduler:0.1.0 .
# PyPI's torch is for GPUs; PyTorch's own index has builds for processors only, 0.45 GB smaller:
#   docker build --build-arg UV_EXTRA_INDEX_URL=... -f ...
FROM python:3.11-slim AS build
RUN apt-get update && apt-get install -y --no-install-recommends gcc libc6-dev && rm -rf /var/lib/apt/lists/*
# uv can leave packages out that others name; pip cannot.
RUN python -m venv /opt/uv && /opt/uv/bin/pip install --no-cache-dir uv && python -m venv /opt/dl2
ARG UV_EXTRA_INDEX_URL
# What we need, in a layer that an edit of ours does not change: without CUDA's libraries, but for its small runtime.
COPY pyproject.toml README.md requirements/lock.txt k8s/images/without_cuda.sh /needs/
RUN sed -nE '/^nvidia-cuda-runtime=/d; s/^(nvidia-[a-z0-9-]+|cuda-bindings|triton)==.*/\1/p' /needs/lock.txt > /needs/left_out.txt \
    && /opt/uv/bin/uv pip install --no-cache --compile-bytecode --index-strategy unsafe-best-match --python /opt/dl2/bin/python \
        --excludes /needs/left_out.txt -c /needs/lock.txt "/needs[scheduler,kubernetes,learning]" \
    && /opt/dl2/bin/pip uninstall -y elastic-ps \
    && find /opt/dl2 -type d -name tests -prune -exec rm -rf {} + \
    && sh /needs/without_cuda.sh /opt/dl2/bin/python
COPY . /source
RUN /opt/dl2/bin/pip wheel --no-cache-dir --no-deps --wheel-dir /wheel /source

FROM python:3.11-slim
COPY --from=build /opt/dl2 /opt/dl2
COPY --from=build /wheel /opt/wheel
RUN /opt/dl2/bin/pip install --no-cache-dir --no-deps /opt/wheel/*.whl
ENV PATH=/opt/dl2/bin:$PATH HOME=/tmp LOGNAME=dl2 NUMBA_CACHE_DIR=/tmp/numba PYTHONUNBUFFERED=1
USER 65532:65532
