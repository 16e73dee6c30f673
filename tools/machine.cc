// SPDX-License-Identifier: Apache-2.0
#include "machine.h"

#include <sched.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "core/pool.h"

namespace mxk::cli {
namespace {

// Every file here is optional: containers and other kernels hide some of them. Missing reads as empty.
std::string read(const std::string& path) {
  std::ifstream in(path);
  std::stringstream text;
  text << in.rdbuf();
  std::string s = text.str();
  while (!s.empty() && (s.back() == '\n' || s.back() == ' ')) s.pop_back();
  return s;
}

// The value of the first line "key<separators>value".
std::string field(const std::string& text, const std::string& key) {
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) {
    if (line.compare(0, key.size(), key) != 0) continue;
    const size_t at = line.find_first_not_of(" \t:=\"", key.size());
    if (at == key.size() || at == std::string::npos) continue;
    return line.substr(at, line.find_last_not_of('"') + 1 - at);
  }
  return {};
}

uint64_t number(const std::string& s) { return std::strtoull(s.c_str(), nullptr, 10); }

// "32768K" as sysfs writes cache sizes.
uint64_t size_of(const std::string& s) {
  char* end = nullptr;
  const uint64_t n = std::strtoull(s.c_str(), &end, 10);
  return *end == 'K' ? n << 10 : *end == 'M' ? n << 20 : *end == 'G' ? n << 30 : n;
}

// The chosen word of "always [madvise] never".
std::string bracketed(const std::string& s) {
  const size_t open = s.find('['), close = s.find(']');
  return open < close && close != std::string::npos ? s.substr(open + 1, close - open - 1) : "";
}

std::string cpu_name(const std::string& cpuinfo) {
  if (std::string name = field(cpuinfo, "model name"); !name.empty()) return name;
  const std::string implementer = field(cpuinfo, "CPU implementer");
  if (implementer.empty()) return "unknown";
  return fmt::format("implementer {} part {}", implementer, field(cpuinfo, "CPU part"));
}

std::vector<std::string> isa_of(const std::string& cpuinfo) {
  static const char* const kKnown[] = {"sse4_2",      "avx",      "f16c",     "fma",      "avx2",        "avx_vnni",
                                       "avx512f",     "avx512bw", "avx512dq", "avx512vl", "avx512_vnni", "avx512vbmi",
                                       "avx512_bf16", "amx_tile", "amx_int8", "amx_bf16", "asimd",       "asimddp",
                                       "i8mm",        "bf16",     "sve",      "sve2"};
  std::string flags = field(cpuinfo, "flags");
  if (flags.empty()) flags = field(cpuinfo, "Features");
  std::istringstream in(flags);
  std::set<std::string> have;
  for (std::string f; in >> f;) have.insert(f);
  std::vector<std::string> isa;
  for (const char* name : kKnown)
    if (have.count(name)) isa.emplace_back(name);
  return isa;
}

void read_caches(Machine& m) {
  cpu_set_t usable;
  if (sched_getaffinity(0, sizeof usable, &usable) != 0) return;
  std::set<std::string> counted;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &usable)) continue;
    std::vector<Machine::Cache> caches;
    std::string last;
    for (int i = 0;; ++i) {
      const std::string dir = fmt::format("/sys/devices/system/cpu/cpu{}/cache/index{}/", cpu, i);
      const std::string level = read(dir + "level");
      if (level.empty()) break;
      caches.push_back({std::atoi(level.c_str()), read(dir + "type"), size_of(read(dir + "size"))});
      if (caches.back().type != "Instruction") last = dir;
    }
    if (last.empty()) return;
    // One instance serves several CPUs; count it once.
    if (counted.insert(read(last + "level") + " " + read(last + "shared_cpu_list")).second)
      m.llc_bytes += size_of(read(last + "size"));
    if (m.caches.empty()) m.caches = caches;
  }
}

// Calls visit(directory) for this process's control group in one hierarchy and for all its ancestors. A container
// may see its own group as the root, so directories that do not exist are passed over.
template <class F>
void each_group(const std::string& mount, std::string path, F&& visit) {
  for (;;) {
    if (std::filesystem::exists(mount + path)) visit(mount + path + "/");
    const size_t slash = path.find_last_of('/');
    if (path.empty() || path == "/" || slash == std::string::npos) return;
    path.resize(slash);
  }
}

void take_quota(Machine& m, double quota, double period) {
  if (quota <= 0 || period <= 0) return;
  const double cpus = quota / period;
  if (m.cpu_quota == 0 || cpus < m.cpu_quota) m.cpu_quota = cpus;
}

void take_memory(Machine& m, uint64_t limit, uint64_t used, uint64_t reclaimable) {
  if (limit == 0 || limit >= m.memory_total) return;
  m.memory_total = limit;
  const uint64_t busy = used - std::min(used, reclaimable);
  m.memory_available = std::min(m.memory_available, limit - std::min(limit, busy));
}

void read_groups(Machine& m) {
  std::istringstream in(read("/proc/self/cgroup"));
  for (std::string line; std::getline(in, line);) {
    const size_t a = line.find(':'), b = line.find(':', a + 1);
    if (b == std::string::npos) continue;
    const std::string controllers = "," + line.substr(a + 1, b - a - 1) + ",";
    const std::string path = line.substr(b + 1);
    if (controllers == ",,") {  // version 2: one hierarchy
      each_group("/sys/fs/cgroup", path, [&](const std::string& dir) {
        std::istringstream max(read(dir + "cpu.max"));
        std::string quota, period;
        if (max >> quota >> period && quota != "max")
          take_quota(m, std::atof(quota.c_str()), std::atof(period.c_str()));
        m.throttled = std::max(m.throttled, number(field(read(dir + "cpu.stat"), "nr_throttled")));
        take_memory(m, number(read(dir + "memory.max")), number(read(dir + "memory.current")),
                    number(field(read(dir + "memory.stat"), "inactive_file")));
      });
    } else if (controllers.find(",cpu,") != std::string::npos) {
      each_group("/sys/fs/cgroup/cpu", path, [&](const std::string& dir) {
        take_quota(m, std::atof(read(dir + "cpu.cfs_quota_us").c_str()),
                   std::atof(read(dir + "cpu.cfs_period_us").c_str()));
        m.throttled = std::max(m.throttled, number(field(read(dir + "cpu.stat"), "nr_throttled")));
      });
    } else if (controllers.find(",memory,") != std::string::npos) {
      each_group("/sys/fs/cgroup/memory", path, [&](const std::string& dir) {
        take_memory(m, number(read(dir + "memory.limit_in_bytes")), number(read(dir + "memory.usage_in_bytes")),
                    number(field(read(dir + "memory.stat"), "total_inactive_file")));
      });
    }
  }
}

int count_numa_nodes() {
  int nodes = 0;
  while (std::filesystem::exists(fmt::format("/sys/devices/system/node/node{}", nodes))) ++nodes;
  return std::max(nodes, 1);
}

}  // namespace

Machine read_machine() {
  Machine m;
  const std::string cpuinfo = read("/proc/cpuinfo"), meminfo = read("/proc/meminfo");
  utsname uts{};
  uname(&uts);
  m.cpu = cpu_name(cpuinfo);
  m.arch = uts.machine;
  m.kernel = std::string(uts.sysname) + " " + uts.release;
  m.os = field(read("/etc/os-release"), "PRETTY_NAME");
  m.isa = isa_of(cpuinfo);
  read_caches(m);
  m.cpus_online = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
  m.cpus_usable = available_threads();
  m.numa_nodes = count_numa_nodes();
  m.load = std::atof(read("/proc/loadavg").c_str());
  m.governor = read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor");
  m.huge_pages = bracketed(read("/sys/kernel/mm/transparent_hugepage/enabled"));
  m.memory_total = number(field(meminfo, "MemTotal")) << 10;
  m.memory_available = number(field(meminfo, "MemAvailable")) << 10;
  read_groups(m);
  return m;
}

Json to_json(const Machine& m) {
  Json caches = Json::array();
  for (const Machine::Cache& c : m.caches) caches.push_back({{"level", c.level}, {"type", c.type}, {"bytes", c.bytes}});
  return {{"cpu", m.cpu},
          {"arch", m.arch},
          {"os", m.os},
          {"kernel", m.kernel},
          {"isa", m.isa},
          {"caches", caches},
          {"llc_bytes", m.llc_bytes},
          {"cpus_online", m.cpus_online},
          {"cpus_usable", m.cpus_usable},
          {"numa_nodes", m.numa_nodes},
          {"cpu_quota", m.cpu_quota > 0 ? Json(m.cpu_quota) : Json(nullptr)},
          {"throttled", m.throttled},
          {"load", m.load},
          {"governor", m.governor},
          {"huge_pages", m.huge_pages},
          {"memory_total", m.memory_total},
          {"memory_available", m.memory_available}};
}

std::string bytes_text(uint64_t bytes) {
  if (bytes < 1000) return fmt::format("{} B", bytes);
  if (bytes < 1000000) return fmt::format("{:.1f} kB", bytes / 1e3);
  if (bytes < 1000000000) return fmt::format("{:.0f} MB", bytes / 1e6);
  return fmt::format("{:.2f} GB", bytes / 1e9);
}

std::string binary_text(uint64_t bytes) {
  const double b = static_cast<double>(bytes);
  if (bytes < (1ull << 20)) return fmt::format("{:.0f} KiB", b / 1024);
  if (bytes < (1ull << 30)) return fmt::format("{:.0f} MiB", b / (1 << 20));
  return fmt::format("{:.1f} GiB", b / (1 << 30));
}

}  // namespace mxk::cli
