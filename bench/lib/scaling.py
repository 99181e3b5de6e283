"""The six loads in worker mode: threads that scale by themselves beside the number that they start with, and beside the fixed number
that suits the load best, which is searched for. It takes hours, so each load is a scenario that runs only when asked for."""

from lib import loads, servers

PAIRS = 9
TARGET = 0.95
# What is tried as the fixed number of each load, before the search goes on upwards.
CANDIDATES = {"hello": (2, 3, 4, 8), "database": (24, 32, 48, 64, 96), "external-api": (256, 384, 512, 768), "computation": (2, 4, 8, 16, 32),
              "hanging": (128, 256, 384), "timeouts": (16, 32, 64, 128, 256, 384)}
NAMES = [f"scaling-{load.scenario}" for load in loads.LOADS]
SCALING, DEFAULT = "scaling", f"{loads.LEAST} threads"


def by_name(name):
    return next(load for load in loads.LOADS if f"scaling-{load.scenario}" == name)


def pairs(options):
    return 1 if options.quick else options.scaling_pairs


def planned_s(name, options):
    load = by_name(name)
    return (len(CANDIDATES[load.scenario]) + 3 * pairs(options)) * loads.planned_s(load, options)


def run(name, options, progress):
    load = by_name(name)
    factor = loads.scale(load, options)

    def once(threads):
        one = loads.run_once(load, servers.BatonWorkWorker(threads, deadline_ms=loads.deadline_ms(load, factor)), factor)
        progress.done(loads.planned_s(load, options))
        progress.say(f"{name}, {threads or 'scaling'}: {one['handled']:,} handled, {loads.in_words(one['not_handled']) or 'no errors'}")
        return one

    searched = search(CANDIDATES[load.scenario], loads.most_clients(load.text()), lambda threads: once(threads)["handled"])
    ideal = max(searched, key=searched.get)
    rounds = []
    for number in range(pairs(options)):
        order = [(SCALING, None), (DEFAULT, loads.LEAST), ("ideal", ideal)]
        rounds.append({variant: once(threads) for variant, threads in (order if number % 2 == 0 else order[::-1])})
    return {"name": name, "seconds": loads.seconds(load.text()) * factor, "searched": searched, "ideal": ideal, "rounds": rounds}


def search(candidates, most, handled_by):
    """What each handled; twice as many are tried as long as the most did best, up to `most`, a thread for each client."""
    searched = {threads: handled_by(threads) for threads in candidates}
    while (best := max(searched, key=searched.get)) == max(searched) and best < most:
        more = min(2 * best, most)
        searched[more] = handled_by(more)
    return searched


def ratios(found, variant=SCALING):
    return [one[variant]["handled"] / one["ideal"]["handled"] for one in found["rounds"] if one["ideal"]["handled"]]
