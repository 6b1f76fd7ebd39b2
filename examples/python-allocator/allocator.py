"""An allocator: queues are dealt to the members like cards."""

from hardpoint_plugin import Allocator, serve


class Dealt(Allocator):
    name, version = "dealt", "1.0.0"

    def allocate(self, request):
        return [q % len(request.members) for q in range(len(request.queues))]


if __name__ == "__main__":
    serve(Dealt)
