// An accelerator that does not exist, as PyTorch's device type "simulated" (dispatch key
// PrivateUse1), so that what the appliance does with a device can be tested without one.
//
// Its memory is the host's, counted against a size; its operators are the processors' kernels. The
// numbers are ready when an operator returns, its time is not: each stream has an instant until
// which it is busy, operators push that instant on, events note it, and whoever synchronises waits
// for it. A copy to the host that need not block is carried out when somebody waits for its stream,
// so what is read too early is what was there before.
//
// SIMULATED_VISIBLE      numbers of the node's devices that this process sees, in its order ("0,1")
// SIMULATED_MEMORY       bytes of memory of each (1 GiB)
// SIMULATED_STATE        folder in which processes leave what the driver would know of them
// SIMULATED_FAULTS       faults of the node's device 0, as "name" or "name=number", by commas; they
//                        are explained in tests/support/simulated_device.py

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/EmptyTensor.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/ops/_local_scalar_dense_native.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/resize_native.h>
#include <ATen/ops/roll.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_as_complex_native.h>
#include <ATen/ops/view_as_real_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <torch/csrc/Generator.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/utils/pybind.h>
#include <torch/library.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <limits>
#include <map>
#include <mutex>
#include <sstream>
#include <string>
#include <thread>

namespace simulated {

using at::Tensor;
using Index = c10::DeviceIndex;
constexpr auto KIND = c10::DeviceType::PrivateUse1;
constexpr int MOST_DEVICES = 8, STREAMS = 32;  // of a device; stream 0 is its default

// ------------------------------------------------------------------------------- settings

std::string variable(const char* name, const char* otherwise) {
  const char* text = std::getenv(name);
  return text && *text ? text : otherwise;
}

std::vector<std::string> by_commas(const std::string& text) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, ',');) parts.push_back(part);
  return parts;
}

struct Settings {
  std::vector<int> visible;  // the node's number of each device of this process
  size_t memory = std::stoull(variable("SIMULATED_MEMORY", "1073741824"));
  std::string state = variable("SIMULATED_STATE", "");
  std::map<std::string, double> faults;

  Settings() {
    for (const auto& number : by_commas(variable("SIMULATED_VISIBLE", "0,1")))
      visible.push_back(std::stoi(number));
    TORCH_CHECK(visible.size() <= MOST_DEVICES, "simulated: at most ", MOST_DEVICES, " devices");
    for (const auto& fault : by_commas(variable("SIMULATED_FAULTS", ""))) {
      const auto equals = fault.find('=');
      const bool has_number = equals != std::string::npos;
      faults[fault.substr(0, equals)] = has_number ? std::stod(fault.substr(equals + 1)) : 1;
    }
  }
  int count() const { return int(visible.size()); }
  // The number of a fault of this device, or none.
  std::optional<double> fault(Index device, const char* name) const {
    const auto entry = faults.find(name);
    if (visible[device] != 0 || entry == faults.end()) return std::nullopt;
    return entry->second;
  }
  // Whether a fault that begins with a certain call has begun.
  bool has_begun(Index device, const char* name, int64_t call) const {
    const auto first = fault(device, name);
    return first && double(call) >= *first;
  }
};
Settings settings;

// ------------------------------------------------------------------------------ the device

using Stats = c10::CachingDeviceAllocator::DeviceStats;

struct LateCopy {  // to the host, of what the source held when it was asked for
  Tensor source, destination;
};

struct Stream {
  double busy_until = 0;  // nanoseconds of the host's clock
  std::vector<LateCopy> late;
};

// What the driver would know of a process that uses a device; SIMULATED_STATE has one file each.
struct Usage {
  uint64_t bytes, calls;
};

struct Device {
  std::array<Stream, STREAMS> streams;
  int next_stream = 1;
  Stats stats;
  std::map<void*, size_t> blocks;
  uint64_t used = 0;
  int64_t calls = 0, matmuls = 0, waits = 0;
  Usage* usage = nullptr;
  bool is_lost = false;
};
std::recursive_mutex mutex;  // guards every device

// Waits for the mutex without the interpreter's lock: who has the mutex may need that to count
// references to a tensor, and two threads would wait for each other.
class Lock {
 public:
  explicit Lock(std::recursive_mutex& held) : held_(held) {
    if (held_.try_lock()) return;
    if (PyGILState_Check()) {
      const py::gil_scoped_release released;
      held_.lock();
    } else {
      held_.lock();
    }
  }
  ~Lock() { held_.unlock(); }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

 private:
  std::recursive_mutex& held_;
};
std::array<Device, MOST_DEVICES> devices;
thread_local Index current = 0;
thread_local std::array<c10::StreamId, MOST_DEVICES> current_stream{};
thread_local int depth = 0;  // of operators: the copies inside one are no calls of their own
struct Inside {
  Inside() { ++depth; }
  ~Inside() { --depth; }
};

double now() {
  const auto passed = std::chrono::steady_clock::now().time_since_epoch();
  return double(std::chrono::duration_cast<std::chrono::nanoseconds>(passed).count());
}

Index checked(Index index) {
  TORCH_CHECK(index >= 0 && index < settings.count(), "simulated: invalid device ordinal ",
              int(index), ", there are ", settings.count());
  return index;
}

Index index_of(c10::Device device) {
  return device.has_index() ? checked(device.index()) : current;
}

std::string file_of(Index index, const char* what) {
  return settings.state + "/" + what + "." + std::to_string(settings.visible[index]);
}

Usage* open_usage(Index index) {
  static Usage nowhere;
  if (settings.state.empty()) return &nowhere;
  const auto path = file_of(index, "used") + "." + std::to_string(getpid());
  const int file = open(path.c_str(), O_RDWR | O_CREAT, 0644);
  void* shared = MAP_FAILED;
  if (file >= 0 && ftruncate(file, sizeof(Usage)) == 0)
    shared = mmap(nullptr, sizeof(Usage), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  TORCH_CHECK(shared != MAP_FAILED, "simulated: cannot write ", path);
  close(file);
  return static_cast<Usage*>(shared);
}

// A device that vanished has done so for every process of the node.
void answer_or_fail(Index index) {
  Device& device = devices[index];
  if (!device.usage) {
    device.usage = open_usage(index);
    device.is_lost = !settings.state.empty() && access(file_of(index, "lost").c_str(), F_OK) == 0;
  }
  if (!device.is_lost && settings.has_begun(index, "vanishes", device.calls)) {
    device.is_lost = true;
    if (!settings.state.empty())
      close(open(file_of(index, "lost").c_str(), O_WRONLY | O_CREAT, 0644));
  }
  TORCH_CHECK(!device.is_lost, "simulated: device ", int(index), " is lost: it does not answer");
}

// A bit of the exponent of one number of the largest block, each time another.
void lose_bit(Device& device, int64_t time) {
  if (device.blocks.empty()) return;
  const auto largest = *std::max_element(device.blocks.begin(), device.blocks.end(),
      [](const auto& a, const auto& b) { return a.second < b.second; });
  const size_t place = time * 4099 % (largest.second / 4);
  static_cast<uint8_t*>(largest.first)[4 * place + 3] ^= 0x40;
}

// One operator on the device's current stream, whose kernel ran since `begin`. The fault "fades"
// loses a bit of memory beside it.
void push(Index index, double begin) {
  if (depth) return;
  const Lock lock(mutex);
  Device& device = devices[index];
  ++device.calls;
  answer_or_fail(index);
  ++device.usage->calls;
  const auto fading = settings.fault(index, "fades");
  if (fading && device.calls % int64_t(*fading) == 0) lose_bit(device, device.calls);
  double& busy_until = device.streams[current_stream[index]].busy_until;
  const double end = now();
  if (settings.fault(index, "shared") || settings.fault(index, "early"))
    busy_until = std::max(busy_until, begin) + 2 * (end - begin);  // work that waits adds up
  busy_until = std::max(busy_until, end);
  if (settings.has_begun(index, "hang", device.calls))
    busy_until = std::numeric_limits<double>::infinity();
}

void carry_out(Stream& stream) {
  for (auto& copy : std::exchange(stream.late, {})) copy.destination.copy_(copy.source);
}

void wait_until(Index index, double instant) {
  if (settings.fault(index, "early")) return;
  while (now() < instant) {
    const double left = std::min(instant - now(), 1e9);
    std::this_thread::sleep_for(std::chrono::nanoseconds(int64_t(std::max(left, 0.0))));
  }
}

void synchronise(Index index, c10::StreamId id) {
  double instant;
  {
    const Lock lock(mutex);
    answer_or_fail(index);
    instant = devices[index].streams[id].busy_until;
  }
  wait_until(index, instant);
  const Lock lock(mutex);
  carry_out(devices[index].streams[id]);
}

// The fault "forgets" loses one where the device is waited for.
void forget(Index index) {
  const auto every = settings.fault(index, "forgets");
  const Lock lock(mutex);
  Device& device = devices[index];
  if (every && ++device.waits % int64_t(*every) == 0) lose_bit(device, device.waits);
}

void synchronise(Index index) {
  for (int id = 0; id < STREAMS; ++id) synchronise(checked(index), id);
  forget(index);
}

// ------------------------------------------------------------------------------ its memory

void count(Index index, int64_t bytes) {
  Device& device = devices[index];
  device.used += bytes;
  device.usage->bytes = device.used;
  Stats& stats = device.stats;
  for (auto* stat : {&stats.allocated_bytes, &stats.reserved_bytes, &stats.active_bytes,
                     &stats.requested_bytes})
    bytes > 0 ? (*stat)[0].increase(bytes) : (*stat)[0].decrease(-bytes);
}

void release(void* data) {
  if (!data) return;
  const Lock lock(mutex);
  for (Index index = 0; index < settings.count(); ++index) {
    auto& blocks = devices[index].blocks;
    const auto block = blocks.find(data);
    if (block == blocks.end()) continue;
    count(index, -int64_t(block->second));
    blocks.erase(block);
    break;
  }
  std::free(data);
}

struct Allocator final : c10::DeviceAllocator {
  c10::DataPtr allocate(size_t wanted) override {
    const Index index = current;
    const c10::Device device(KIND, index);
    if (wanted == 0) return {nullptr, nullptr, &release, device};
    const size_t bytes = (wanted + 511) / 512 * 512;  // as the allocators of real devices round
    const Lock lock(mutex);
    answer_or_fail(index);
    if (devices[index].used + bytes > settings.memory) {
      ++devices[index].stats.num_ooms;
      TORCH_CHECK_WITH(OutOfMemoryError, false, "simulated: out of memory: ", bytes,
                       " bytes wanted on device ", int(index), ", ", devices[index].used, " of ",
                       settings.memory, " in use");
    }
    void* data = std::aligned_alloc(512, bytes);
    TORCH_CHECK(data, "simulated: the host is out of memory");
    devices[index].blocks[data] = bytes;
    count(index, int64_t(bytes));
    return {data, data, &release, device};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }
  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t) override {}  // nothing is cached
  void recordStream(const c10::DataPtr&, c10::Stream) override {}
  Stats getDeviceStats(Index index) override {
    const Lock lock(mutex);
    return devices[checked(index)].stats;
  }
  void resetAccumulatedStats(Index) override {}
  void resetPeakStats(Index index) override {
    const Lock lock(mutex);
    Stats& stats = devices[checked(index)].stats;
    for (auto* stat : {&stats.allocated_bytes, &stats.reserved_bytes, &stats.active_bytes,
                       &stats.requested_bytes})
      (*stat)[0].reset_peak();
  }
  std::pair<size_t, size_t> getMemoryInfo(Index index) override {
    const Lock lock(mutex);
    return {settings.memory - devices[checked(index)].used, settings.memory};
  }
};
Allocator allocator;
REGISTER_ALLOCATOR(KIND, &allocator)

// ------------------------------------------------------------------- streams and events

struct Event {
  bool is_timed;
  Index device;
  c10::StreamId stream;
  double instant;  // at which what was given to the stream before is done, by the host's clock
};

Event& event_of(void* event) { return *static_cast<Event*>(event); }

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return KIND; }
  c10::Device getDevice() const override { return {KIND, current}; }
  c10::Device exchangeDevice(c10::Device device) const override {
    const auto before = getDevice();
    setDevice(device);
    return before;
  }
  void setDevice(c10::Device device) const override { current = checked(device.index()); }
  void uncheckedSetDevice(c10::Device device) const noexcept override { current = device.index(); }
  Index deviceCount() const noexcept override { return Index(settings.count()); }

  static c10::Stream stream(Index index, c10::StreamId id) {
    return c10::Stream(c10::Stream::UNSAFE, c10::Device(KIND, index), id);
  }
  c10::Stream getStream(c10::Device device) const override {
    return stream(index_of(device), current_stream[index_of(device)]);
  }
  c10::Stream getDefaultStream(c10::Device device) const override {
    return stream(index_of(device), 0);
  }
  c10::Stream getNewStream(c10::Device device, int) const override {
    const Lock lock(mutex);
    int& next = devices[index_of(device)].next_stream;
    const int id = next;
    next = next % (STREAMS - 1) + 1;  // round and round, as a pool of streams does
    return stream(index_of(device), id);
  }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool) const override {
    return getNewStream(device, 0);
  }
  c10::Stream exchangeStream(c10::Stream other) const override {
    const auto before = getStream(other.device());
    current_stream[other.device_index()] = other.id();
    return before;
  }
  bool queryStream(const c10::Stream& asked) const override {
    const Lock lock(mutex);
    auto& own = devices[asked.device_index()].streams[asked.id()];
    const bool is_done = now() >= own.busy_until;
    if (is_done) carry_out(own);
    return is_done;
  }
  void synchronizeStream(const c10::Stream& one) const override {
    synchronise(one.device_index(), one.id());
  }
  void synchronizeDevice(const Index index) const override { synchronise(index); }

  void record(void** event, const c10::Stream& on, const Index index,
              const c10::EventFlag flag) const override {
    TORCH_CHECK(index == -1 || index == on.device_index(), "simulated: an event of device ",
                int(index), " cannot be recorded on a stream of device ", int(on.device_index()));
    const Lock lock(mutex);
    const double done = devices[on.device_index()].streams[on.id()].busy_until;
    if (!*event) *event = new Event{};
    event_of(*event) = {flag == c10::EventFlag::BACKEND_DEFAULT, on.device_index(), on.id(),
                        std::max(now(), done)};
  }
  void block(void* event, const c10::Stream& waiting) const override {
    if (!event) return;
    const Lock lock(mutex);
    double& busy_until = devices[waiting.device_index()].streams[waiting.id()].busy_until;
    busy_until = std::max(busy_until, event_of(event).instant);
  }
  bool queryEvent(void* event) const override {
    return !event || settings.fault(event_of(event).device, "early") ||
           now() >= event_of(event).instant;
  }
  void synchronizeEvent(void* event) const override {
    if (!event) return;
    wait_until(event_of(event).device, event_of(event).instant);
    const Lock lock(mutex);
    carry_out(devices[event_of(event).device].streams[event_of(event).stream]);
  }
  void destroyEvent(void* event, const Index) const noexcept override {
    delete static_cast<Event*>(event);
  }
  double elapsedTime(void* first, void* last, const Index) const override {
    TORCH_CHECK(first && last, "simulated: both events must be recorded");
    const Event &begin = event_of(first), &end = event_of(last);
    TORCH_CHECK(begin.is_timed && end.is_timed, "simulated: both events need enable_timing=True");
    TORCH_CHECK(queryEvent(first) && queryEvent(last), "simulated: both events must be reached");
    return (end.instant - begin.instant) * settings.fault(end.device, "clock").value_or(1) / 1e6;
  }
};
C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard)

// ------------------------------------------------------------------ generators and hooks

// Keeps its state in a generator of the processors, from which their kernels can draw.
struct Generator final : c10::GeneratorImpl {
  at::Generator twin;
  Generator(Index index, at::Generator twin)
      : c10::GeneratorImpl(c10::Device(KIND, index),
                           c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)),
        twin(std::move(twin)) {}
  void set_current_seed(uint64_t seed) override { twin.set_current_seed(seed); }
  uint64_t current_seed() const override { return twin.current_seed(); }
  uint64_t seed() override { return twin.seed(); }
  void set_offset(uint64_t) override { TORCH_CHECK(false, "simulated: generators do not skip"); }
  uint64_t get_offset() const override { TORCH_CHECK(false, "simulated: generators do not skip"); }
  void set_state(const c10::TensorImpl& state) override {
    twin.unsafeGetGeneratorImpl()->set_state(state);
  }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override {
    return twin.unsafeGetGeneratorImpl()->get_state();
  }
  Generator* clone_impl() const override { return new Generator(device().index(), twin.clone()); }
};

at::Generator new_generator(Index index) {
  return at::make_generator<Generator>(index, at::detail::createCPUGenerator());
}

const at::Generator& default_generator(Index index) {
  static std::map<Index, at::Generator> made;
  const Lock lock(mutex);
  const Index one = checked(index == -1 ? current : index);
  if (!made.count(one)) made.emplace(one, new_generator(one));
  return made.at(one);
}

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return settings.count() > 0; }
  bool hasPrimaryContext(Index) const override { return true; }
  Index deviceCount() const override { return Index(settings.count()); }
  Index getCurrentDevice() const override { return current; }
  void setCurrentDevice(Index index) const override { current = checked(index); }
  Index exchangeDevice(Index index) const override { return std::exchange(current, checked(index)); }
  Index maybeExchangeDevice(Index index) const override {
    return index < 0 ? current : exchangeDevice(index);
  }
  c10::Allocator* getPinnedMemoryAllocator() const override {
    return c10::GetAllocator(c10::DeviceType::CPU);
  }
  const at::Generator& getDefaultGenerator(Index index) const override {
    return default_generator(index);
  }
  at::Generator getNewGenerator(Index index) const override {
    return new_generator(index == -1 ? current : checked(index));
  }
  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t bytes) const override {
    const c10::DeviceGuard guard(storage.device());
    auto larger = allocator.allocate(bytes);
    if (const size_t both = std::min(bytes, storage.nbytes()))
      std::memcpy(larger.get(), storage.data(), both);
    storage.unsafeGetStorageImpl()->set_data_ptr_noswap(std::move(larger));
    storage.unsafeGetStorageImpl()->set_nbytes(bytes);
  }
};

// -------------------------------------------------------------------- tensors and copies

bool is_ours(const Tensor& tensor) { return tensor.defined() && tensor.device().type() == KIND; }

// The same bytes as a tensor of the processors, which holds on to the storage.
Tensor on_host(const Tensor& tensor) {
  if (!is_ours(tensor)) return tensor;
  auto view = at::from_blob(tensor.data_ptr(), tensor.sizes(), tensor.strides(),
                            [storage = tensor.storage()](void*) {},
                            tensor.options().device(at::kCPU));
  if (tensor.is_conj()) view._set_conj(true);
  if (tensor.is_neg()) view._set_neg(true);
  return view;
}

constexpr c10::DispatchKeySet KEYS(c10::DispatchKey::PrivateUse1);

Tensor empty_strided(c10::IntArrayRef size, c10::IntArrayRef stride,
                     std::optional<c10::ScalarType> dtype, std::optional<c10::Layout> layout,
                     std::optional<c10::Device> device, std::optional<bool>) {
  TORCH_CHECK(c10::layout_or_default(layout) == c10::kStrided, "simulated: no sparse tensors");
  const c10::DeviceGuard guard({KIND, index_of(device.value_or(c10::Device(KIND)))});
  return at::detail::empty_strided_generic(size, stride, &allocator, KEYS,
                                           c10::dtype_or_default(dtype));
}

Tensor empty(c10::IntArrayRef size, std::optional<c10::ScalarType> dtype,
             std::optional<c10::Layout> layout, std::optional<c10::Device> device,
             std::optional<bool>, std::optional<c10::MemoryFormat> format) {
  TORCH_CHECK(c10::layout_or_default(layout) == c10::kStrided, "simulated: no sparse tensors");
  const c10::DeviceGuard guard({KIND, index_of(device.value_or(c10::Device(KIND)))});
  return at::detail::empty_generic(size, &allocator, KEYS, c10::dtype_or_default(dtype), format);
}

// What a kernel of the processors returned, in the device's memory; left unwritten if so wanted.
Tensor on_device(const Tensor& result, Index index, bool is_written = true) {
  if (!result.defined()) return result;
  auto tensor = empty_strided(result.sizes(), result.strides(), result.scalar_type(),
                              c10::kStrided, c10::Device(KIND, index), false);
  if (is_written) on_host(tensor).copy_(result);
  return tensor;
}

Tensor copy_from(const Tensor& source, const Tensor& destination, bool is_asynchronous) {
  const double begin = now();
  if (is_ours(destination) || depth) {
    on_host(destination).copy_(on_host(source));
    if (is_ours(source)) push(source.device().index(), begin);
    if (is_ours(destination)) push(destination.device().index(), begin);
    return destination;
  }
  const Index index = source.device().index();
  push(index, begin);
  if (is_asynchronous) {
    const Lock lock(mutex);
    auto& stream = devices[index].streams[current_stream[index]];
    stream.late.push_back({on_host(source).clone(), destination});
  } else {
    synchronise(index, current_stream[index]);
    destination.copy_(on_host(source));
  }
  return destination;
}

Tensor copy_from_and_resize(const Tensor& source, const Tensor& destination) {
  destination.resize_(source.sizes());
  return copy_from(source, destination, false);
}

at::Scalar local_scalar_dense(const Tensor& tensor) {
  const Index index = tensor.device().index();
  push(index, now());
  if (!depth) synchronise(index, current_stream[index]);
  return at::native::_local_scalar_dense_cpu(on_host(tensor));
}

const Tensor& resize_(const Tensor& tensor, c10::IntArrayRef size,
                      std::optional<c10::MemoryFormat> format) {
  const c10::DeviceGuard guard(tensor.device());
  return at::native::resize_(tensor, size, format);
}

// By torch's own list a tensor of this kind of device cannot become the data of a parameter of the
// host, as one of any other device can; then a module that is moved would lose what layers share.
bool can_be_data(const Tensor& tensor, const Tensor& data) {
  return tensor.layout() == c10::kStrided && data.layout() == c10::kStrided;
}

Tensor& set_(Tensor& tensor, at::Storage source, int64_t offset, c10::IntArrayRef size,
             c10::IntArrayRef stride) {
  return at::native::set_storage_cpu_(tensor, std::move(source), offset, size, stride);
}

// ------------------------------------------------------------------------------ operators

using Operator = c10::OperatorHandle;
using Values = torch::jit::Stack;

// Replaces each tensor among the last `number` values, in lists too.
template <class F>
void replace(Values& values, size_t number, F replaced) {
  for (size_t place = values.size() - number; place < values.size(); ++place) {
    auto& value = values[place];
    if (value.isTensor()) {
      value = replaced(value.toTensor());
    } else if (value.isTensorList()) {
      c10::List<Tensor> list;
      for (const Tensor& tensor : value.toTensorList()) list.push_back(replaced(tensor));
      value = std::move(list);
    } else if (value.isOptionalTensorList()) {
      c10::List<std::optional<Tensor>> list;
      for (const std::optional<Tensor>& tensor : value.toOptionalTensorList())
        list.push_back(tensor ? std::optional<Tensor>(replaced(*tensor)) : tensor);
      value = std::move(list);
    }
  }
}

// The device on which an operator runs. An accelerator refuses a tensor of another device, and one
// of the host unless it is a single number or says where to write and read.
Index device_of(const Operator& op, Values& values) {
  int index = -1;
  bool has_host = false;
  const size_t number = op.schema().arguments().size();
  replace(values, number, [&](const Tensor& tensor) {
    if (!is_ours(tensor)) {
      has_host |= tensor.defined() && tensor.is_cpu() && tensor.dim() > 0;
      return tensor;
    }
    TORCH_CHECK(index < 0 || index == tensor.device().index(), op.operator_name(),
                ": expected all tensors on one device, but some are on simulated:", index,
                " and some on ", tensor.device());
    index = tensor.device().index();
    return tensor;
  });
  TORCH_CHECK(index < 0 || !has_host || op.operator_name().name.find("index") != std::string::npos,
              op.operator_name(), ": expected all tensors on one device, but some are on simulated:",
              index, " and some on cpu");
  for (size_t place = values.size() - number; place < values.size() && index < 0; ++place)
    if (values[place].isDevice() && values[place].toDevice().type() == KIND)
      index = index_of(values[place].toDevice());
  return Index(index < 0 ? current : index);
}

void exchange_generators(const Operator& op, Values& values, Index index) {
  const auto& arguments = op.schema().arguments();
  for (size_t place = 0; place < arguments.size(); ++place) {
    if (arguments[place].name() != "generator") continue;
    auto& value = values[values.size() - arguments.size() + place];
    const auto given = value.isNone() ? default_generator(index) : value.toGenerator();
    if (given.device().type() == KIND)
      value = static_cast<Generator*>(given.unsafeGetGeneratorImpl())->twin;
  }
}

// Whether an operator can work on the device's own bytes: it has no argument that it may resize,
// none that says where to make something, and returns no view.
bool works_in_place(const c10::FunctionSchema& schema) {
  for (const auto& argument : schema.arguments()) {
    const auto* alias = argument.alias_info();
    if (argument.is_out() || argument.name() == "device" || (alias && !alias->isWrite()))
      return false;
  }
  return true;
}

// Runs the processors' kernel on the device's own bytes, which shows all that a kernel writes,
// whatever its schema says: the running statistics of a batch norm are not in it.
void run_in_place(const Operator& op, Values& values, Index index, bool is_written = true) {
  std::vector<std::pair<Tensor, Tensor>> views;
  replace(values, op.schema().arguments().size(), [&](const Tensor& tensor) {
    if (!is_ours(tensor)) return tensor;
    views.emplace_back(on_host(tensor), tensor);
    return views.back().first;
  });
  op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), &values);
  replace(values, op.schema().returns().size(), [&](const Tensor& result) {
    for (const auto& [view, tensor] : views)
      if (result.is_same(view)) return tensor;
    return on_device(result, index, is_written);
  });
}

// Of products of 64-bit integers, as the generator of inputs makes them.
void lose_lowest_bits(const Tensor& output) {
  if (output.scalar_type() != at::kLong) return;
  auto* numbers = static_cast<int64_t*>(output.data_ptr());
  for (int64_t place = 0; place < output.numel(); ++place) numbers[place] &= ~int64_t(1);
}

template <bool ALWAYS_IN_PLACE>
void run(const Operator& op, Values* values) {
  const double begin = now();
  const Index index = device_of(op, *values);
  const c10::DeviceGuard guard({KIND, index});
  exchange_generators(op, *values, index);
  {
    const Inside inside;
    if (ALWAYS_IN_PLACE || works_in_place(op.schema()))
      run_in_place(op, *values, index);
    else
      at::native::cpu_fallback(op, values);
  }
  if (op.schema().name() == "aten::mul" && settings.fault(index, "integers"))
    lose_lowest_bits(values->back().toTensor());
  push(index, begin);
}

// ------------------------------------------------------- matmuls, where most faults happen

// Keeps 10 of the 23 bits behind the point, by rounding to nearest, as TF32 does.
Tensor shortened(const Tensor& tensor) {
  if (tensor.scalar_type() != at::kFloat) return tensor;
  auto result = tensor.clone(at::MemoryFormat::Contiguous);
  auto* bits = static_cast<uint32_t*>(result.data_ptr());
  for (int64_t place = 0; place < result.numel(); ++place)
    bits[place] = (bits[place] + 0x1000) & 0xffffe000;
  return result;
}

void flip_bit(const Tensor& output) {
  if (output.numel() == 0) return;
  const auto size = output.element_size();  // the second highest bit, of the exponent in a float
  static_cast<uint8_t*>(output.data_ptr())[output.numel() / 2 * size + size - 1] ^= 0x40;
}

// FIRST: the number of the left operand among the arguments.
template <int FIRST>
void matmul(const Operator& op, Values* values) {
  const double begin = now();
  const Index index = device_of(op, *values);
  const c10::DeviceGuard guard({KIND, index});
  int64_t call;
  {
    const Lock lock(mutex);
    call = ++devices[index].matmuls;
  }
  auto& left = (*values)[values->size() - op.schema().arguments().size() + FIRST];
  auto& right = (*values)[values->size() - op.schema().arguments().size() + FIRST + 1];
  auto a = on_host(left.toTensor()), b = on_host(right.toTensor());
  {
    const Inside inside;
    if (settings.fault(index, "order")) {
      const int64_t begin_at = call + getpid();  // the first call of each process is another, too
      left = at::roll(a, begin_at, -1);
      right = at::roll(b, begin_at, -2);
    } else if (settings.fault(index, "short")) {
      left = shortened(a);
      right = shortened(b);
    }
    if (works_in_place(op.schema()))
      run_in_place(op, *values, index, !settings.has_begun(index, "unwritten", call));
    else
      at::native::cpu_fallback(op, values);
  }
  if (settings.fault(index, "flip") == double(call)) flip_bit(values->back().toTensor());
  push(index, begin);
}

Tensor convolution(const Tensor& input, const Tensor& weight, const std::optional<Tensor>& bias,
                   c10::IntArrayRef stride, c10::IntArrayRef padding, c10::IntArrayRef dilation,
                   bool is_transposed, c10::IntArrayRef output_padding, int64_t groups) {
  const double begin = now();
  const Index index = input.device().index();
  const auto own_bias = bias ? std::optional<Tensor>(on_host(*bias)) : bias;
  auto output = on_device(at::convolution(on_host(input), on_host(weight), own_bias, stride,
                                          padding, dilation, is_transposed, output_padding, groups),
                          index);
  push(index, begin);
  return output;
}

std::tuple<Tensor, Tensor, Tensor> convolution_backward(
    const Tensor& gradient, const Tensor& input, const Tensor& weight, c10::IntArrayRef stride,
    c10::IntArrayRef padding, c10::IntArrayRef dilation, bool is_transposed,
    c10::IntArrayRef output_padding, int64_t groups, std::array<bool, 3> wanted) {
  const double begin = now();
  const Index index = input.device().index();
  const int64_t channels = is_transposed ? weight.size(1) * groups : weight.size(0);
  auto [of_input, of_weight, of_bias] = at::convolution_backward(
      on_host(gradient), on_host(input), on_host(weight), c10::IntArrayRef(channels), stride,
      padding, dilation, is_transposed, output_padding, groups, wanted);
  push(index, begin);
  return {on_device(of_input, index), on_device(of_weight, index), on_device(of_bias, index)};
}

// --------------------------------------------------------------------------- registration

template <c10::KernelFunction::BoxedKernelFunction* KERNEL>
torch::CppFunction boxed() {
  return torch::CppFunction::makeFromBoxedFunction<KERNEL>();
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) { m.fallback(boxed<&run<false>>()); }

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", &empty);
  m.impl("empty_strided", &empty_strided);
  m.impl("_copy_from", &copy_from);
  m.impl("_copy_from_and_resize", &copy_from_and_resize);
  m.impl("_local_scalar_dense", &local_scalar_dense);
  m.impl("resize_", &resize_);
  m.impl("_has_compatible_shallow_copy_type", &can_be_data);
  m.impl("set_.source_Storage_storage_offset", &set_);
  m.impl("set_.source_Storage", TORCH_FN(at::native::set_));
  m.impl("set_.source_Tensor", TORCH_FN(at::native::set_tensor_));
  m.impl("view", TORCH_FN(at::native::view));
  m.impl("as_strided", TORCH_FN(at::native::as_strided_tensorimpl));
  m.impl("_reshape_alias", TORCH_FN(at::native::_reshape_alias));
  m.impl("unfold", TORCH_FN(at::native::unfold));
  m.impl("view_as_real", TORCH_FN(at::native::view_as_real));
  m.impl("view_as_complex", TORCH_FN(at::native::view_as_complex));
  m.impl("convolution_overrideable", &convolution);
  m.impl("convolution_backward_overrideable", &convolution_backward);
  m.impl("native_batch_norm", boxed<&run<true>>());
  for (const char* name : {"mm", "mm.out", "bmm", "bmm.out", "_int_mm", "_scaled_mm"})
    m.impl(name, boxed<&matmul<0>>());
  for (const char* name : {"addmm", "addmm.out", "addmm_", "baddbmm", "baddbmm.out", "baddbmm_"})
    m.impl(name, boxed<&matmul<1>>());
}

// A composite kernel is preferred to a fallback, and would compute many operators otherwise than
// the processors do (layer norm by batch norm). So what has a kernel there has its name here.
void register_by_name() {
  using Key = c10::DispatchKey;
  static torch::Library library(torch::Library::IMPL, "aten", Key::PrivateUse1, __FILE__, __LINE__);
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const auto& name : dispatcher.getAllOpNames()) {
    const auto op = dispatcher.findOp(name);
    const auto has = [&](Key key) { return op->hasKernelForDispatchKey(key); };
    const bool is_composite = has(Key::CompositeExplicitAutograd) ||
                              has(Key::CompositeImplicitAutograd) ||
                              has(Key::CompositeExplicitAutogradNonFunctional);
    if (name.getNamespace() == std::optional<std::string_view>("aten") && op->hasSchema() &&
        is_composite && has(Key::CPU) && !has(Key::PrivateUse1))
      library.impl(c10::toString(name).c_str(), boxed<&run<false>>());
  }
}

// `_copy_from` resolves conjugation and sign itself. Torch would copy to resolve them, for ever.
TORCH_LIBRARY_IMPL(aten, Conjugate, m) {
  m.impl("_copy_from", torch::CppFunction::makeFallthrough());
}
TORCH_LIBRARY_IMPL(aten, Negative, m) {
  m.impl("_copy_from", torch::CppFunction::makeFallthrough());
}

TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFallthrough());
}
TORCH_LIBRARY_IMPL(aten, AutocastPrivateUse1, m) {  // torch's own lists
#define LOWER(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, lower_precision_fp)
#define FLOAT32(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32)
  AT_FORALL_LOWER_PRECISION_FP(LOWER)
  AT_FORALL_FP32(FLOAT32)
}

// ---------------------------------------------------------------------------- collectives

// What has been done already, and its tensors: those of the device, not the views of the host.
struct Done final : c10d::Work {
  std::vector<Tensor> tensors;
  explicit Done(std::vector<Tensor> tensors) : tensors(std::move(tensors)) {}
  bool isCompleted() override { return true; }
  bool isSuccess() const override { return true; }
  bool wait(std::chrono::milliseconds) override { return true; }
  void synchronize() override {}
  std::vector<Tensor> result() override { return tensors; }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override {
    auto future = c10::make_intrusive<c10::ivalue::Future>(
        c10::ListType::create(c10::TensorType::get()), std::vector<c10::Device>{});
    future->markCompleted(c10::IValue(tensors));
    return future;
  }
};

// Collectives among devices, by those of the host (gloo) on the same bytes.
struct Collectives final : c10d::Backend {
  using List = std::vector<Tensor>;
  using Lists = std::vector<List>;
  using Running = c10::intrusive_ptr<c10d::Work>;
  c10::intrusive_ptr<c10d::Backend> inner;

  explicit Collectives(c10::intrusive_ptr<c10d::Backend> inner)
      : c10d::Backend(inner->getRank(), inner->getSize()), inner(std::move(inner)) {}
  const std::string getBackendName() const override { return "simulated"; }

  static List views(const List& tensors) {
    List result;
    for (const auto& tensor : tensors) {
      if (is_ours(tensor)) synchronise(tensor.device().index());
      result.push_back(on_host(tensor));
    }
    return result;
  }
  static Lists views(const Lists& lists) {
    Lists result;
    for (const auto& list : lists) result.push_back(views(list));
    return result;
  }
  static Tensor view(const Tensor& tensor) { return views(List{tensor})[0]; }
  static Running finish(const Running& work, List tensors) {
    work->wait();
    return c10::make_intrusive<Done>(std::move(tensors));
  }
  static List joined(const Lists& lists) {
    List result;
    for (const auto& list : lists) result.insert(result.end(), list.begin(), list.end());
    return result;
  }

  Running broadcast(List& all, const c10d::BroadcastOptions& options) override {
    auto host = views(all);
    return finish(inner->broadcast(host, options), all);
  }
  Running allreduce(List& all, const c10d::AllreduceOptions& options) override {
    auto host = views(all);
    return finish(inner->allreduce(host, options), all);
  }
  Running allreduce_coalesced(List& all, const c10d::AllreduceCoalescedOptions& options) override {
    auto host = views(all);
    return finish(inner->allreduce_coalesced(host, options), all);
  }
  Running reduce(List& all, const c10d::ReduceOptions& options) override {
    auto host = views(all);
    return finish(inner->reduce(host, options), all);
  }
  Running allgather(Lists& out, List& in, const c10d::AllgatherOptions& options) override {
    auto to = views(out);
    auto from = views(in);
    return finish(inner->allgather(to, from, options), joined(out));
  }
  Running _allgather_base(Tensor& out, Tensor& in, const c10d::AllgatherOptions& options) override {
    auto to = view(out), from = view(in);
    return finish(inner->_allgather_base(to, from, options), {out});
  }
  Running allgather_into_tensor_coalesced(List& out, List& in,
                                          const c10d::AllgatherOptions& options) override {
    auto to = views(out), from = views(in);
    return finish(inner->allgather_into_tensor_coalesced(to, from, options), out);
  }
  Running gather(Lists& out, List& in, const c10d::GatherOptions& options) override {
    auto to = views(out);
    auto from = views(in);
    return finish(inner->gather(to, from, options), joined(out));
  }
  Running scatter(List& out, Lists& in, const c10d::ScatterOptions& options) override {
    auto to = views(out);
    auto from = views(in);
    return finish(inner->scatter(to, from, options), out);
  }
  Running reduce_scatter(List& out, Lists& in,
                         const c10d::ReduceScatterOptions& options) override {
    auto to = views(out);
    auto from = views(in);
    return finish(inner->reduce_scatter(to, from, options), out);
  }
  Running _reduce_scatter_base(Tensor& out, Tensor& in,
                               const c10d::ReduceScatterOptions& options) override {
    auto to = view(out), from = view(in);
    return finish(inner->_reduce_scatter_base(to, from, options), {out});
  }
  Running reduce_scatter_tensor_coalesced(List& out, List& in,
                                          const c10d::ReduceScatterOptions& options) override {
    auto to = views(out), from = views(in);
    return finish(inner->reduce_scatter_tensor_coalesced(to, from, options), out);
  }
  Running alltoall_base(Tensor& out, Tensor& in, std::vector<int64_t>& out_sizes,
                        std::vector<int64_t>& in_sizes,
                        const c10d::AllToAllOptions& options) override {
    auto to = view(out), from = view(in);
    return finish(inner->alltoall_base(to, from, out_sizes, in_sizes, options), {out});
  }
  Running alltoall(List& out, List& in, const c10d::AllToAllOptions& options) override {
    auto to = views(out), from = views(in);
    return finish(inner->alltoall(to, from, options), out);
  }
  // Two ranks may each send before they receive, so these are not waited for.
  Running send(List& all, int rank, int tag) override {
    auto host = views(all);
    return inner->send(host, rank, tag);
  }
  Running recv(List& all, int rank, int tag) override {
    auto host = views(all);
    return inner->recv(host, rank, tag);
  }
  Running barrier(const c10d::BarrierOptions& options) override {
    auto own = options;
    own.device = std::nullopt;
    own.device_ids.clear();
    return finish(inner->barrier(own), {});
  }
};

}  // namespace simulated

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  namespace py = pybind11;
  using namespace simulated;
  py::module_::import("torch.distributed");  // has the type from which ours is derived
  at::RegisterPrivateUse1HooksInterface(new Hooks);
  register_by_name();
  m.def("device_count", [] { return settings.count(); });
  m.def("current_device", [] { return int(current); });
  m.def("exchange_device", [](Index index) { return int(std::exchange(current, checked(index))); });
  m.def("synchronize", [](Index index) {
    const py::gil_scoped_release released;
    synchronise(index);
  });
  m.def("calls", [](Index index) {
    const Lock lock(mutex);
    return std::pair(devices[checked(index)].calls, devices[checked(index)].matmuls);
  });
  m.def("default_generator", [](Index index) {
    return py::reinterpret_borrow<py::object>(
        THPGenerator_initDefaultGenerator(default_generator(index)));
  });
  py::class_<Collectives, c10d::Backend, c10::intrusive_ptr<Collectives>>(m, "Collectives")
      .def(py::init<c10::intrusive_ptr<c10d::Backend>>());
}
