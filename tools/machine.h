// SPDX-License-Identifier: Apache-2.0
//
// What this machine gives to this process: CPU, caches, limits that the scheduler or a container imposes, memory.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli.h"

namespace mxk::cli {

struct Machine {
  struct Cache {
    int level;
    std::string type;  // Data, Instruction or Unified
    uint64_t bytes;
  };
  std::string cpu, arch, os, kernel;
  std::vector<std::string> isa;  // instruction sets that matter to the backends
  std::vector<Cache> caches;     // of one usable CPU
  uint64_t llc_bytes = 0;        // last-level caches of all usable CPUs together; 0: the system does not say
  int cpus_online = 0;
  int cpus_usable = 0;  // by the affinity mask
  int numa_nodes = 1;
  double cpu_quota = 0;    // CPUs' worth of time the control group grants; 0: no quota
  uint64_t throttled = 0;  // times the quota has stopped the group so far
  double load = 0;         // runnable tasks, average of the last minute
  std::string governor;    // CPU frequency governor; empty: unknown
  std::string huge_pages;  // transparent huge pages: always, madvise or never; empty: unknown
  uint64_t memory_total = 0;
  uint64_t memory_available = 0;  // the smaller of the system's and the control group's
};

Machine read_machine();
Json to_json(const Machine& machine);

// "425 MB", "1.7 GB": decimal units, as bandwidth is quoted.
std::string bytes_text(uint64_t bytes);
// "32 MiB": binary units, as caches and memory are quoted.
std::string binary_text(uint64_t bytes);

}  // namespace mxk::cli
