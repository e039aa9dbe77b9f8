#include "tests/levels_anywhere/probe_bodies.h"

quire::test::Probes quire::test::real_probes() { return {kProbes, sizeof(kProbes) / sizeof(kProbes[0])}; }
