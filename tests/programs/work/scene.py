"""A scene for blender: many subdivided spheres, rendered by Cycles."""
import bpy
import hashlib

for n in range(6):
    bpy.ops.mesh.primitive_uv_sphere_add(segments=64, ring_count=32, location=(n % 3 * 2 - 2, n // 3 * 2 - 1, 0))
    bpy.context.object.modifiers.new("subdivide", "SUBSURF").render_levels = 2
scene = bpy.context.scene
scene.render.engine = "CYCLES"
scene.cycles.samples, scene.cycles.use_denoising, scene.cycles.device = 2, False, "CPU"
scene.render.resolution_x, scene.render.resolution_y = 320, 240
scene.render.filepath = "picture.png"
scene.render.image_settings.file_format = "BMP"
bpy.ops.render.render(write_still=True)
with open("picture.bmp", "rb") as file:
    print("picture", hashlib.md5(file.read()).hexdigest())
