# What learns, with torch: `dl2 serve --learn`, `dl2 bootstrap`, `dl2 learn`. Deciding needs none of it, by a learnt policy neither.
# Build from the repository's folder:
#   docker build -f k8s/images/scheduler.Dockerfile -t dl2/scheduler:0.1.0 .
# PyPI's torch cannot be imported without CUDA's libraries, of which the scheduler uses none. PyTorch's own index has builds without:
#   docker build --build-arg PIP_EXTRA_INDEX_URL=... -f ...
FROM python:3.11-slim AS build
RUN apt-get update && apt-get install -y --no-install-recommends gcc libc6-dev && rm -rf /var/lib/apt/lists/*
RUN python -m venv /opt/dl2
ARG PIP_EXTRA_INDEX_URL
# What we need, in a layer that an edit of ours does not change; without what torch loads on a GPU only.
COPY pyproject.toml README.md requirements/lock.txt /needs/
RUN /opt/dl2/bin/pip install --no-cache-dir -c /needs/lock.txt "/needs[scheduler,kubernetes,learning]" \
    && /opt/dl2/bin/pip uninstall -y elastic-ps triton \
    && find /opt/dl2 -path '*/nvidia/*' \( -name 'libcudnn_*' -o -name '*.alt.so*' -o -name 'libcusolverMg.*' \) -delete \
    && find /opt/dl2 -type d -name tests -prune -exec rm -rf {} +
COPY . /source
RUN /opt/dl2/bin/pip wheel --no-cache-dir --no-deps --wheel-dir /wheel /source

FROM python:3.11-slim
COPY --from=build /opt/dl2 /opt/dl2
COPY --from=build /wheel /opt/wheel
RUN /opt/dl2/bin/pip install --no-cache-dir --no-deps /opt/wheel/*.whl
ENV PATH=/opt/dl2/bin:$PATH HOME=/tmp LOGNAME=dl2 NUMBA_CACHE_DIR=/tmp/numba PYTHONUNBUFFERED=1
USER 65532:65532
