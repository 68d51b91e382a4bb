#include "daemon/probe/lsm_hooks.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <dirent.h>
#include <linux/magic.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "bpf/lsm_attribute.skel.h"
#include "bpf/lsm_exec.skel.h"
#include "bpf/lsm_file.skel.h"
#include "bpf/lsm_guard.skel.h"
#include "bpf/lsm_path.skel.h"
#include "bpf/lsm_process.skel.h"
#include "bpf/lsm_unix.skel.h"
#include "bpf/siphash.h"
#include "common/base/log.h"
#include "common/base/status.h"
#include "common/kernel/proc_fs.h"

namespace agentmon {
namespace {

constexpr const char* kMapNames[LsmHooks::kMaps] = {"lsm_config",  "lsm_sessions", "lsm_policies",
                                                    "lsm_nodes",   "lsm_aliases",  "lsm_names",
                                                    "lsm_denials", "lsm_lost",     "lsm_scratches"};
constexpr char kBpfMount[] = "/sys/fs/bpf";
constexpr char kModules[] = "/sys/kernel/security/lsm";
constexpr uint32_t kScratchesPerCpu = 4;  // as the programs have it

absl::Status CheckModules() {
  const auto list = ReadWholeFile(kModules);
  if (!list.ok()) return WithContext(list.status(), "which security modules run here is not known");
  for (const absl::string_view name : absl::StrSplit(absl::StripSuffix(*list, "\n"), ',')) {
    if (name == "bpf") return absl::OkStatus();
  }
  return absl::FailedPreconditionError(absl::StrCat("bpf is not among the security modules of this host (",
                                                    absl::StripSuffix(*list, "\n"),
                                                    "); the kernel's parameter lsm= names them"));
}

absl::Status CheckBpfFileSystem() {
  struct statfs fs {};
  if (statfs(kBpfMount, &fs) == 0 && fs.f_type == BPF_FS_MAGIC) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("no BPF file system at ", kBpfMount));
}

// What the programs are and how they were set up: those of another build are never taken for ours.
template <typename Skeleton>
void AddTo(am_sip& sip) {
  size_t size = 0;
  const auto* bytes = static_cast<const char*>(Skeleton::elf_bytes(&size));
  for (size_t at = 0; at < size; at += sizeof(uint64_t)) {
    uint64_t word = 0;
    std::memcpy(&word, bytes + at, std::min(sizeof(word), size - at));
    am_sip_word(&sip, word);
  }
}

std::string BuildName(uint32_t session_level) {
  am_sip sip;
  am_sip_start(&sip, session_level, static_cast<uint64_t>(libbpf_num_possible_cpus()));
  AddTo<lsm_file_bpf>(sip);
  AddTo<lsm_exec_bpf>(sip);
  AddTo<lsm_path_bpf>(sip);
  AddTo<lsm_attribute_bpf>(sip);
  AddTo<lsm_unix_bpf>(sip);
  AddTo<lsm_process_bpf>(sip);
  AddTo<lsm_guard_bpf>(sip);
  return absl::StrCat(absl::Hex(am_sip_end(&sip, 0, 0), absl::kZeroPad16));
}

std::vector<std::string> NamesIn(const std::string& directory) {
  std::vector<std::string> names;
  DIR* dir = opendir(directory.c_str());
  if (dir == nullptr) return names;
  while (const dirent* entry = readdir(dir)) {
    if (entry->d_name[0] != '.') names.emplace_back(entry->d_name);
  }
  closedir(dir);
  return names;
}

// Of one build. Links first: without their maps programs would refuse everything.
void RemovePins(const std::string& directory) {
  std::vector<std::string> names = NamesIn(directory);
  std::stable_partition(names.begin(), names.end(),
                        [](const std::string& name) { return absl::StartsWith(name, "on_"); });
  for (const std::string& name : names) unlink(absl::StrCat(directory, "/", name).c_str());
  rmdir(directory.c_str());
}

}  // namespace

absl::StatusOr<std::unique_ptr<LsmHooks>> LsmHooks::Create(std::string pins, uint32_t session_level) {
  RETURN_IF_ERROR(CheckModules());
  RETURN_IF_ERROR(CheckBpfFileSystem());
  std::unique_ptr<LsmHooks> hooks(new LsmHooks(std::move(pins), session_level));
  hooks->own_ = absl::StrCat(hooks->pins_, "/", BuildName(session_level));
  if (hooks->TakeOver().ok()) return hooks;
  RemovePins(hooks->own_);  // half of it, if anything
  for (UniqueFd& map : hooks->maps_) map.Reset();
  RETURN_IF_ERROR(hooks->MakeMaps());
  RETURN_IF_ERROR(hooks->Load());
  return hooks;
}

// All maps, and all programs that were attached: what one build could not load, it cannot load now.
absl::Status LsmHooks::TakeOver() {
  for (size_t i = 0; i < kMaps; ++i) {
    maps_[i].Reset(bpf_obj_get(PinOf(kMapNames[i]).c_str()));
    if (!maps_[i].valid()) return ErrnoStatus(errno, kMapNames[i]);
  }
  if (!UniqueFd(bpf_obj_get(PinOf("on_file_open").c_str())).valid())
    return ErrnoStatus(errno, "on_file_open");
  const uint32_t zero = 0;
  am_lsm_config config{};
  if (bpf_map_lookup_elem(map(kConfig), &zero, &config) != 0) return ErrnoStatus(errno, kMapNames[kConfig]);
  key_ = {config.key[0], config.key[1]};
  running_.insert("lsm_file");
  for (const auto& [name, program] : {std::pair("lsm_path", "on_path_unlink"),
                                      {kLsmExec, "on_mmap_file"},
                                      {"lsm_attribute", "on_inode_setattr"},
                                      {kLsmUnix, "on_unix_may_send"},
                                      {kLsmProcess, "on_ptrace_access_check"},
                                      {kLsmGuard, "on_kernel_load_data"}}) {
    if (UniqueFd(bpf_obj_get(PinOf(program).c_str())).valid())
      running_.insert(name);
    else
      inactive_.push_back(absl::StrCat(name, ": it was not active when the daemon before this one ended"));
  }
  attached_ = true;
  return absl::OkStatus();
}

absl::Status LsmHooks::MakeMaps() {
  UniqueSkeleton<lsm_file_bpf> skeleton(lsm_file_bpf::open(nullptr));
  if (skeleton == nullptr) return BpfError(errno, "open lsm_file");
  for (size_t i = 0; i < kMaps; ++i) {
    const bpf_map* map = bpf_object__find_map_by_name(skeleton->obj, kMapNames[i]);
    if (map == nullptr) return absl::InternalError(absl::StrCat("no map ", kMapNames[i]));
    const uint32_t entries = i == kScratches
                                 ? kScratchesPerCpu * static_cast<uint32_t>(libbpf_num_possible_cpus())
                                 : bpf_map__max_entries(map);
    LIBBPF_OPTS(bpf_map_create_opts, options);
    options.map_flags = bpf_map__map_flags(map);
    maps_[i].Reset(bpf_map_create(bpf_map__type(map), kMapNames[i], bpf_map__key_size(map),
                                  bpf_map__value_size(map), entries, &options));
    if (!maps_[i].valid()) return BpfError(errno, absl::StrCat("make the BPF map ", kMapNames[i]));
  }
  am_lsm_config config{};
  if (getrandom(config.key, sizeof(config.key), 0) != sizeof(config.key))
    return ErrnoStatus(errno, "getrandom");
  config.session_level = session_level_;
  struct stat mounts {};
  if (stat("/proc/1/ns/mnt", &mounts) != 0) return ErrnoStatus(errno, "look at the host's mount namespace");
  config.host_mounts = static_cast<uint32_t>(mounts.st_ino);
  key_ = {config.key[0], config.key[1]};
  const uint32_t zero = 0;
  if (bpf_map_update_elem(map(kConfig), &zero, &config, BPF_ANY) != 0)
    return ErrnoStatus(errno, kMapNames[kConfig]);
  return absl::OkStatus();
}

template <typename Skeleton>
absl::Status LsmHooks::LoadObject(const char* name) {
  ASSIGN_OR_RETURN(auto skeleton, LoadSkeleton<Skeleton>(name, [this](Skeleton* opened) -> absl::Status {
                     for (size_t i = 0; i < kMaps; ++i) {
                       bpf_map* map = bpf_object__find_map_by_name(opened->obj, kMapNames[i]);
                       if (map == nullptr) return absl::InternalError(absl::StrCat("no map ", kMapNames[i]));
                       if (const int error = bpf_map__reuse_fd(map, maps_[i].get()); error != 0)
                         return ErrnoStatus(-error, "share a BPF map");
                     }
                     return absl::OkStatus();
                   }));
  Object object;
  object.name = name;
  object.bpf = skeleton->obj;
  object.owner = std::shared_ptr<Skeleton>(std::move(skeleton));
  objects_.push_back(std::move(object));
  running_.insert(name);
  return absl::OkStatus();
}

// Apart: one that a kernel refuses does not take the others down. Without opens the rest is not worth its
// cost.
absl::Status LsmHooks::Load() {
  running_.clear();
  inactive_.clear();
  RETURN_IF_ERROR(LoadObject<lsm_file_bpf>("lsm_file"));
  for (const auto& [name, loaded] : {std::pair("lsm_path", LoadObject<lsm_path_bpf>("lsm_path")),
                                     {kLsmExec, LoadObject<lsm_exec_bpf>(kLsmExec)},
                                     {"lsm_attribute", LoadObject<lsm_attribute_bpf>("lsm_attribute")},
                                     {kLsmUnix, LoadObject<lsm_unix_bpf>(kLsmUnix)},
                                     {kLsmProcess, LoadObject<lsm_process_bpf>(kLsmProcess)},
                                     {kLsmGuard, LoadObject<lsm_guard_bpf>(kLsmGuard)}}) {
    if (!loaded.ok()) inactive_.push_back(absl::StrCat(name, ": ", loaded.message()));
  }
  return absl::OkStatus();
}

absl::Status LsmHooks::AttachObject(Object& object) {
  bpf_program* program;
  bpf_object__for_each_program(program, object.bpf) {
    const char* name = bpf_program__name(program);
    UniqueLink link(bpf_program__attach_lsm(program));
    if (link == nullptr) return BpfError(errno, absl::StrCat("attach ", name));
    if (bpf_obj_pin(bpf_link__fd(link.get()), PinOf(name).c_str()) != 0)
      return ErrnoStatus(errno, absl::StrCat("pin ", name));
    object.links.push_back(std::move(link));
  }
  return absl::OkStatus();
}

absl::Status LsmHooks::Attach() {
  if (attached_) return absl::OkStatus();
  if (objects_.empty()) RETURN_IF_ERROR(Load());  // an earlier daemon's programs ran until now
  for (size_t at = pins_.find('/', 1); at != std::string::npos; at = pins_.find('/', at + 1))
    mkdir(pins_.substr(0, at).c_str(), 0700);
  mkdir(pins_.c_str(), 0700);
  if (mkdir(own_.c_str(), 0700) != 0 && errno != EEXIST)
    return ErrnoStatus(errno, absl::StrCat("make ", own_));
  absl::Status status;
  for (size_t i = 0; i < kMaps && status.ok(); ++i) {
    if (bpf_obj_pin(map(static_cast<Map>(i)), PinOf(kMapNames[i]).c_str()) != 0)
      status = ErrnoStatus(errno, absl::StrCat("pin ", kMapNames[i]));
  }
  attached_ = true;
  for (auto object = objects_.begin(); object != objects_.end() && status.ok();) {
    const absl::Status s = AttachObject(*object);
    if (s.ok()) {
      ++object;
    } else if (object->name == "lsm_file") {
      status = s;
    } else {
      inactive_.push_back(absl::StrCat(object->name, ": ", s.message()));
      running_.erase(object->name);
      bpf_program* program;
      bpf_object__for_each_program(program, object->bpf) {
        unlink(PinOf(bpf_program__name(program)).c_str());
      }
      object = objects_.erase(object);
    }
  }
  if (!status.ok()) Detach();
  return status;
}

void LsmHooks::Detach() {
  if (!attached_) return;
  for (Object& object : objects_) object.links.clear();
  RemovePins(own_);
  rmdir(pins_.c_str());
  rmdir(pins_.substr(0, pins_.rfind('/')).c_str());  // of all instances, when this was the last
  attached_ = false;
}

void LsmHooks::DetachOthers() {
  for (const std::string& name : NamesIn(pins_)) {
    if (pins_ + "/" + name != own_) RemovePins(pins_ + "/" + name);
  }
  rmdir(pins_.c_str());
  rmdir(pins_.substr(0, pins_.rfind('/')).c_str());
}

uint64_t LsmHooks::Skipped() const {
  uint64_t skipped = 0;
  for (const Object& object : objects_) {
    bpf_program* program;
    bpf_object__for_each_program(program, object.bpf) { skipped += RecursionMisses(program); }
  }
  return skipped;
}

}  // namespace agentmon
