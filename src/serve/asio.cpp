// The parts of Asio and Beast that are no templates; CMakeLists.txt says so to everybody else.
#include <boost/asio/impl/src.hpp>
#include <boost/beast/src.hpp>
