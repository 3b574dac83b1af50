// A page that is opened from disk may not start a worker, and the search runs in one. Here the worker's script
// runs in a frame of the same page instead. From a server, the browser's own workers are used.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(address) {
      super()
      this.frame = document.createElement("iframe")
      this.frame.hidden = true
      document.documentElement.append(this.frame)
      const inside = this.frame.contentWindow
      const tell = (type, fields) => {
        const event = Object.assign(new Event(type), fields)
        this.dispatchEvent(event)
        this["on" + type]?.(event)
      }
      inside.postMessage = data => setTimeout(() => tell("message", { data }))
      const script = inside.document.createElement("script")
      this.ready = new Promise(done => { script.onload = done })
      script.onerror = () => tell("error", { message: "The search cannot be loaded." })
      script.src = address
      inside.document.head.append(script)
    }

    postMessage(data) {
      const inside = this.frame.contentWindow
      this.ready.then(() => inside.dispatchEvent(new inside.MessageEvent("message", { data })))
    }

    terminate() { this.frame.remove() }
  }
}
