// The parts of Asio and Beast that are not templates; CMakeLists.txt defines this for all other files.
#include <boost/asio/impl/src.hpp>
#include <boost/beast/src.hpp>
