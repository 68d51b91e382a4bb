// Root's policy files, read and checked as one: the floor and the policies that have a name.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "agentmon/v1/policy.pb.h"
#include "common/policy/rule.h"
#include "common/policy/snapshot.h"

namespace agentmon {

// Where they lie. A name is looked for in policies_dir, then in shipped_dir, then among what is built in.
struct PolicyPlaces {
  std::string floor_dir = "/etc/agentmon/floor.d";
  std::string policies_dir = "/etc/agentmon/policies";
  std::string shipped_dir = "/usr/share/agentmon/policies";
  std::string default_policy = "default";

  friend bool operator==(const PolicyPlaces&, const PolicyPlaces&) = default;
};

struct PolicyFile {
  std::string name;  // of the file, without its extension
  std::string path;
  std::shared_ptr<const policy::Document> document;  // null: diagnostics say why
  policy::Diagnostics diagnostics;                   // of loading, compiling and lint
};

// Immutable once made.
struct PolicyLibrary {
  std::vector<PolicyFile> floor;            // in the order of their names
  std::map<std::string, PolicyFile> named;  // by name
  std::string default_policy;
  bool stands_in = false;  // for one that could not be read: no session begins with it

  bool ok() const;                       // every file loads and compiles, and the default policy is there
  policy::Diagnostics Problems() const;  // errors only
  // Null when there is none of this name that loads.
  std::shared_ptr<const policy::Document> Find(const std::string& name) const;
};

// Reads all files; takes milliseconds to seconds: not on the core thread. Files that others than root may
// write are errors, and so is a directory of the floor that is gone although there was a floor before.
std::shared_ptr<const PolicyLibrary> ReadPolicyLibrary(const PolicyPlaces& places, bool had_floor = false);
// Of the last good library; false where none is known.
bool HadFloor(const std::string& archive);

// What is in force for sessions that run already when the files are broken at a start: the last good library,
// else the shipped policies with `default` as the floor and the files of the floor that do load. `why` is one
// line.
std::shared_ptr<const PolicyLibrary> FallbackLibrary(const PolicyLibrary& broken, const std::string& archive,
                                                     std::string* why);

void ToArchive(const PolicyLibrary& library, v1::PolicyArchive& archive);
// Do they say the same? Places and texts of rules count, the time of reading does not.
bool SamePolicies(const PolicyLibrary& a, const PolicyLibrary& b);

}  // namespace agentmon
