/* Whether a library's function has the type we declare: parameter by parameter, treating
 * enumerations as ints and all pointers alike. For files that compare our declarations with a
 * library's own header (matmul/lt_check.cu, conv/dnn_check.cu). */
#ifndef ACI_CUDA_SIGNATURE_CUH
#define ACI_CUDA_SIGNATURE_CUH
#include <tuple>
#include <type_traits>

template <class T, bool POINTER = std::is_pointer<T>::value, bool ENUM = std::is_enum<T>::value>
struct aci_plain {
  typedef T type;
};
template <class T> struct aci_plain<T, true, false> { typedef const void *type; };
template <class T> struct aci_plain<T, false, true> { typedef int type; };

template <class F> struct aci_parameters;
template <class R, class... P> struct aci_parameters<R(P...)> {
  typedef std::tuple<typename aci_plain<R>::type, typename aci_plain<P>::type...> type;
};

/* X of a list X(name, parameters) of calls that return an int. */
#define ACI_SAME_CALL(name, params)                                    \
  static_assert(std::is_same<aci_parameters<decltype(::name)>::type,   \
                             aci_parameters<int params>::type>::value, \
                #name);

#endif
